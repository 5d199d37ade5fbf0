/* A CUDA driver without a GPU: `libcuda.so.1` for tests of everything that the library asks a driver.
 *
 * It keeps the rules that matter to a caller: a current context for each thread, functions that belong to a context,
 * memory that can be written and read back, capture modes, no use after a fork. Like the real driver it loads anything
 * with success, and gives a kernel only of an image that the device in use really runs. A launch is logged and computes
 * nothing. Build with -D<symbol>=left_out to leave a function out, as an old driver does.
 *
 *   FAKE_CUDA_DEVICES   the devices, `CC[:NAME[:MEGABYTES]]` separated by `;`, as in `8.0;9.0:NVIDIA H200:143771`
 *   FAKE_CUDA_DRIVER    what cuDriverGetVersion says; default 13000
 *   FAKE_CUDA_FAIL      results, `FUNCTION[@DEVICE]=CODE` separated by `,`, as in `cuInit=999` or
 *                       `cuDeviceGetName@1=101`; for a function without a device argument, DEVICE is that of the
 *                       current context
 *   FAKE_CUDA_CAPTURE   what every stream's capture status is: `none`, `active`, `invalidated`; or `implicit`: another
 *                       stream is captured, which the default stream waits for
 *   FAKE_CUDA_APART     devices that no other one can reach, as in `1,2`
 *   FAKE_CUDA_LOG       a file to which each call that does something is added, one line each:
 *                       FUNCTION thread=N context=DEVICE|- [name=value …] -> RESULT
 *   CUDA_VISIBLE_DEVICES  empty: no device, as with the real driver
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
enum { MOST_DEVICES = 16, MOST_NAME = 128 };
enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201, PEER_ALREADY_ENABLED = 704, INVALID_HANDLE = 400, NOT_FOUND = 500, CAPTURE_UNSUPPORTED = 900, CAPTURE_IMPLICIT = 906,
};
enum { RELAXED = 2 };

typedef struct { int ordinal, major, minor; char name[MOST_NAME]; size_t memory; } Device; /* also its primary context */
typedef struct { int sm; char suffix; const unsigned char *image; size_t size; } Library;
typedef struct { Library *library; char entry[256]; } Kernel;
typedef struct { Kernel *kernel; Device *context; } Function;

static Device devices[MOST_DEVICES];
static int count, initialised;
static pid_t owner;
static __thread Device *current;
static __thread int mode; /* 0 global, 1 thread-local, 2 relaxed */

/* ---- environment and log ---- */

static const char *setting(const char *name, const char *otherwise) {
    const char *text = getenv(name);
    return text ? text : otherwise;
}

/* The result that FAKE_CUDA_FAIL sets for a function, for any device or for this one. */
static int set_result(const char *function, int device) {
    const char *at = setting("FAKE_CUDA_FAIL", "");
    size_t length = strlen(function);
    while (*at) {
        const char *end = strchrnul(at, ',');
        if (!strncmp(at, function, length)) {
            if (at[length] == '=') return atoi(at + length + 1);
            if (at[length] == '@' && device >= 0 && atoi(at + length + 1) == device) return atoi(strchr(at, '=') + 1);
        }
        at = *end ? end + 1 : end;
    }
    return SUCCESS;
}

static void say(const char *function, int result, const char *format, ...) {
    const char *path = getenv("FAKE_CUDA_LOG");
    if (!path) return;
    char details[700] = "", line[1024], context[16] = "-";
    va_list list;
    va_start(list, format);
    vsnprintf(details, sizeof details, format, list);
    va_end(list);
    if (current) snprintf(context, sizeof context, "%d", current->ordinal);
    int n = snprintf(line, sizeof line, "%s thread=%ld context=%s%s%s -> %d\n", function, syscall(SYS_gettid), context,
                     *details ? " " : "", details, result);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0 || write(file, line, n) != n) abort();
    close(file);
}

/* What every function but cuInit checks first. */
static int ready(const char *function, int device) {
    if (!initialised || getpid() != owner) return NOT_INITIALIZED;
    return set_result(function, device >= 0 ? device : current ? current->ordinal : -1);
}

#define CHECK(device) \
    do { \
        int result_ = ready(__func__, device); \
        if (result_) { \
            say(__func__, result_, ""); \
            return result_; \
        } \
    } while (0)

/* Calls that a capture forbids to threads that are not relaxed. */
static int forbidden(void) { return !strcmp(setting("FAKE_CUDA_CAPTURE", "none"), "active") && mode != RELAXED; }

/* ---- start, devices ---- */

API int cuInit(unsigned flags) {
    (void)flags;
    if (initialised && getpid() != owner) return NOT_INITIALIZED;
    int result = set_result(__func__, -1);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *at = setting("FAKE_CUDA_DEVICES", "");
    if (!result && visible && !*visible) result = NO_DEVICE;
    if (!result && !initialised) {
        while (*at && count < MOST_DEVICES) {
            const char *end = strchrnul(at, ';');
            Device *d = &devices[count];
            unsigned long megabytes = 80000;
            d->ordinal = count++;
            strcpy(d->name, "Fake GPU");
            sscanf(at, "%d.%d:%127[^:;]:%lu", &d->major, &d->minor, d->name, &megabytes);
            d->memory = megabytes << 20;
            at = *end ? end + 1 : end;
        }
        owner = getpid();
        initialised = 1;
    }
    say(__func__, result, "");
    return result;
}

API int cuDriverGetVersion(int *version) {
    *version = atoi(setting("FAKE_CUDA_DRIVER", "13000"));
    return set_result(__func__, -1);
}

static const struct { int code; const char *name; } NAMES[] = {
    {0, "CUDA_SUCCESS"}, {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"},
    {3, "CUDA_ERROR_NOT_INITIALIZED"}, {34, "CUDA_ERROR_STUB_LIBRARY"}, {100, "CUDA_ERROR_NO_DEVICE"},
    {101, "CUDA_ERROR_INVALID_DEVICE"}, {200, "CUDA_ERROR_INVALID_IMAGE"}, {201, "CUDA_ERROR_INVALID_CONTEXT"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"}, {218, "CUDA_ERROR_INVALID_PTX"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"}, {400, "CUDA_ERROR_INVALID_HANDLE"}, {500, "CUDA_ERROR_NOT_FOUND"},
    {205, "CUDA_ERROR_MAP_FAILED"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {801, "CUDA_ERROR_NOT_SUPPORTED"}, {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"}, {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"}, {999, "CUDA_ERROR_UNKNOWN"},
};

/* A code that a driver does not know: no text, and an error. */
API int cuGetErrorName(int code, const char **text) {
    *text = NULL;
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (NAMES[i].code == code) *text = NAMES[i].name;
    return *text ? SUCCESS : INVALID_VALUE;
}

API int cuGetErrorString(int code, const char **text) {
    int result = cuGetErrorName(code, text);
    if (*text) *text = "said by the fake driver";
    return result;
}

API int cuDeviceGetCount(int *out) {
    CHECK(-1);
    *out = count;
    return SUCCESS;
}

API int cuDeviceGet(int *out, int ordinal) {
    CHECK(ordinal);
    if (ordinal < 0 || ordinal >= count) return INVALID_DEVICE;
    *out = ordinal + 1000; /* a handle is no ordinal */
    return SUCCESS;
}

static Device *device_of(int handle) {
    return handle >= 1000 && handle < 1000 + count ? &devices[handle - 1000] : NULL;
}

API int cuDeviceGetName(char *name, int length, int handle) {
    CHECK(handle - 1000);
    Device *d = device_of(handle);
    if (!d) return INVALID_DEVICE;
    snprintf(name, length, "%s", d->name);
    return SUCCESS;
}

API int cuDeviceTotalMem_v2(size_t *bytes, int handle) {
    CHECK(handle - 1000);
    Device *d = device_of(handle);
    if (!d) return INVALID_DEVICE;
    *bytes = d->memory;
    return SUCCESS;
}

API int cuDeviceGetAttribute(int *value, int attribute, int handle) {
    CHECK(handle - 1000);
    Device *d = device_of(handle);
    if (!d) return INVALID_DEVICE;
    *value = attribute == 75 ? d->major : attribute == 76 ? d->minor : 0;
    return SUCCESS;
}

API int cuDeviceGetUuid_v2(char *uuid, int handle) {
    CHECK(handle - 1000);
    Device *d = device_of(handle);
    if (!d) return INVALID_DEVICE;
    memset(uuid, 0x40 + d->ordinal, 16);
    return SUCCESS;
}

static int apart(int ordinal) {
    for (const char *at = setting("FAKE_CUDA_APART", ""); *at; at = *strchrnul(at, ',') ? strchrnul(at, ',') + 1 : "")
        if (atoi(at) == ordinal) return 1;
    return 0;
}

API int cuDeviceCanAccessPeer(int *can, int handle, int peer) {
    CHECK(handle - 1000);
    if (!device_of(handle) || !device_of(peer)) return INVALID_DEVICE;
    *can = handle != peer && !apart(handle - 1000) && !apart(peer - 1000);
    return SUCCESS;
}

/* ---- contexts ---- */

API int cuDevicePrimaryCtxRetain(void **context, int handle) {
    CHECK(handle - 1000);
    Device *d = device_of(handle);
    if (!d) return INVALID_DEVICE;
    *context = d;
    say(__func__, SUCCESS, "device=%d", d->ordinal);
    return SUCCESS;
}

API int cuCtxGetCurrent(void **context) {
    CHECK(-1);
    *context = current;
    return SUCCESS;
}

API int cuCtxSetCurrent(void *context) {
    CHECK(-1);
    current = context;
    return SUCCESS;
}

API int cuCtxSynchronize(void) {
    CHECK(-1);
    int result = !current ? INVALID_CONTEXT : forbidden() ? CAPTURE_UNSUPPORTED : SUCCESS;
    say(__func__, result, "");
    return result;
}

/* ---- code ---- */

static uint64_t number(const unsigned char *at, int bytes) {
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;) value = value << 8 | at[i];
    return value;
}

/* The end of an ELF file: of its section and program header tables, and of every section with contents. */
static size_t elf_size(const unsigned char *elf) {
    uint64_t sections = number(elf + 40, 8), programs = number(elf + 32, 8), size = 64;
    int n = number(elf + 60, 2), of = number(elf + 58, 2), p = number(elf + 56, 2), po = number(elf + 54, 2);
    if (sections + (uint64_t)n * of > size) size = sections + (uint64_t)n * of;
    if (programs + (uint64_t)p * po > size) size = programs + (uint64_t)p * po;
    for (int i = 0; i < n; i++) {
        const unsigned char *s = elf + sections + (uint64_t)i * of;
        uint64_t end = number(s + 24, 8) + number(s + 32, 8);
        if (number(s + 4, 4) != 8 && end > size) size = end; /* 8: no contents in the file */
    }
    return size;
}

static void look_at_elf(Library *l, const unsigned char *elf) {
    uint32_t flags = number(elf + 48, 4);
    int abi = elf[8];
    size_t size = elf_size(elf);
    l->sm = abi >= 8 ? flags >> 8 & 0xff : flags & 0xff;
    l->suffix = (abi >= 8 ? flags & 8 : flags & 0x800) ? 'a' : ' ';
    const char *note = memmem(elf, size, "-arch sm_", 9);
    if (note) {
        const char *end = note + 9;
        while (*end >= '0' && *end <= '9') end++;
        if (*end == 'a' || *end == 'f') l->suffix = *end;
    }
}

/* Reads what it needs of a fatbin with one image, or of a cubin; anything else holds no kernel. */
static void look_at(Library *l) {
    const unsigned char *image = l->image;
    if (number(image, 4) == 0xba55ed50) {
        l->size = 16 + number(image + 8, 8);
        if (number(image + 16, 2) != 2) return;
        l->sm = number(image + 16 + 28, 4);
        uint64_t flags = number(image + 16 + 40, 8);
        l->suffix = flags >> 20 & 1 ? 'a' : flags >> 21 & 1 ? 'f' : ' ';
    } else if (!memcmp(image, "\x7f"
                              "ELF",
                       4)) {
        l->size = elf_size(image);
        look_at_elf(l, image);
    }
}

static int runs(const Library *l, const Device *d) {
    int major = l->sm / 10, minor = l->sm % 10;
    if (!l->sm || major != d->major) return 0;
    return l->suffix == 'a' ? minor == d->minor : minor <= d->minor;
}

static int has_kernel(const Library *l, const char *entry) {
    char section[300];
    int n = snprintf(section, sizeof section, ".text.%s", entry) + 1; /* with its NUL: a whole name */
    return l->size && memmem(l->image, l->size, section, n) != NULL;
}

static uint64_t fnv(const unsigned char *bytes, size_t size) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

API int cuLibraryLoadData(void **out, const void *image, int *jit, void **jit_values, unsigned jits, int *options,
                          void **values, unsigned n) {
    (void)jit, (void)jit_values, (void)jits, (void)options, (void)values, (void)n;
    CHECK(-1);
    if (forbidden()) {
        say(__func__, CAPTURE_UNSUPPORTED, "");
        return CAPTURE_UNSUPPORTED;
    }
    Library seen = {.suffix = ' ', .image = image}, *l = malloc(sizeof *l);
    look_at(&seen);
    *l = seen;
    /* The caller may free its buffer after this call. */
    if (seen.size) l->image = memcpy(malloc(seen.size), image, seen.size);
    const unsigned char *head = image;
    say(__func__, SUCCESS, "image=%016llx bytes=%zu head=%02x%02x%02x%02x sm=%d%.1s", (unsigned long long)fnv(image, seen.size),
        seen.size, head[0], head[1], head[2], head[3], seen.sm, seen.suffix == ' ' ? "" : &seen.suffix);
    *out = l;
    return SUCCESS;
}

API int cuLibraryGetKernelCount(unsigned *out, void *library) {
    CHECK(-1);
    Library *l = library;
    *out = current && runs(l, current) && l->size && memmem(l->image, l->size, ".text.", 6) ? 1 : 0;
    return SUCCESS;
}

API int cuLibraryGetKernel(void **out, void *library, const char *entry) {
    CHECK(-1);
    Library *l = library;
    int result = !current ? INVALID_CONTEXT : runs(l, current) && has_kernel(l, entry) ? SUCCESS : NOT_FOUND;
    say(__func__, result, "entry=%s", entry);
    if (result) return result;
    Kernel *kernel = calloc(1, sizeof *kernel);
    kernel->library = l;
    snprintf(kernel->entry, sizeof kernel->entry, "%s", entry);
    *out = kernel;
    return SUCCESS;
}

API int cuKernelGetFunction(void **out, void *kernel) {
    CHECK(-1);
    if (!current) return INVALID_CONTEXT;
    Function *function = calloc(1, sizeof *function);
    *function = (Function){kernel, current};
    say(__func__, SUCCESS, "entry=%s", function->kernel->entry);
    *out = function;
    return SUCCESS;
}

API int cuFuncSetAttribute(void *f, int attribute, int value) {
    CHECK(-1);
    Function *function = f;
    int result = function->context != current ? INVALID_HANDLE : attribute != 8 || value > 227 << 10 ? 1 : SUCCESS;
    say(__func__, result, "entry=%s attribute=%d value=%d", function->kernel->entry, attribute, value);
    return result;
}

/* What the map holds is the description once more: the first words in the order of the arguments. */
API int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *data, const uint64_t *dims, const uint64_t *strides,
                               const unsigned *box, const unsigned *steps, int interleave, int swizzle, int l2, int fill) {
    uint64_t bytes = type == 0 ? 1 : 2;
    int result = rank != 3 || (uintptr_t)data % 16 || (uintptr_t)map % 64 || box[0] * bytes != 128 || interleave || fill;
    for (unsigned i = 0; i < 3 && !result; i++) {
        result = !dims[i] || dims[i] > (uint64_t)1 << 32 || !box[i] || box[i] > 256 || steps[i] != 1;
        if (i < 2) result |= !strides[i] || strides[i] % 16 || strides[i] >> 40;
    }
    if (!result) memset(map, 0x5a, 128);
    say(__func__, result, "type=%d dims=%llu,%llu,%llu strides=%llu,%llu box=%u,%u,%u swizzle=%d l2=%d", type,
        (unsigned long long)dims[0], (unsigned long long)dims[1], (unsigned long long)dims[2],
        (unsigned long long)strides[0], (unsigned long long)strides[1], box[0], box[1], box[2], swizzle, l2);
    return result;
}

typedef struct { unsigned grid[3], block[3], shared; void *stream, *attributes; unsigned n; } Launch;

API int cuLaunchKernelEx(const Launch *launch, void *f, void **params, void **extra) {
    CHECK(-1);
    Function *function = f;
    int result = function->context != current ? INVALID_HANDLE : SUCCESS;
    /* One struct, or a buffer of parameters with its size: pointer, 1, size, 2, end. */
    char taken[64] = "struct";
    if (extra && (params || extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4])) result = 1;
    if (extra && !result) {
        size_t size = *(size_t *)extra[3];
        snprintf(taken, sizeof taken, "%zu:%016llx", size, (unsigned long long)fnv(extra[1], size));
    }
    say(__func__, result, "entry=%s grid=%u,%u,%u block=%u,%u,%u shared=%u params=%s stream=%p sm=%d%.1s", function->kernel->entry,
        launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0], launch->block[1], launch->block[2],
        launch->shared, taken, launch->stream, function->kernel->library->sm,
        function->kernel->library->suffix == ' ' ? "" : &function->kernel->library->suffix);
    return result;
}

/* ---- capture ---- */

API int cuThreadExchangeStreamCaptureMode(int *value) {
    CHECK(-1);
    int before = mode;
    mode = *value;
    *value = before;
    say(__func__, SUCCESS, "mode=%d", mode);
    return SUCCESS;
}

API int cuStreamIsCapturing(void *stream, int *status) {
    CHECK(-1);
    const char *capture = setting("FAKE_CUDA_CAPTURE", "none");
    int result = current ? SUCCESS : INVALID_CONTEXT;
    if (!strcmp(capture, "implicit") && !stream) result = CAPTURE_IMPLICIT;
    *status = !strcmp(capture, "active") ? 1 : !strcmp(capture, "invalidated") ? 2 : 0;
    say(__func__, result, "stream=%p", stream);
    return result;
}

/* ---- memory, streams, events ---- */

API int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    CHECK(-1);
    int result = !current ? INVALID_CONTEXT : forbidden() ? CAPTURE_UNSUPPORTED : SUCCESS;
    if (!result && bytes > current->memory) result = OUT_OF_MEMORY;
    void *memory = NULL;
    if (!result && posix_memalign(&memory, 256, bytes)) result = OUT_OF_MEMORY;
    *address = (uint64_t)(uintptr_t)memory;
    say(__func__, result, "bytes=%zu", bytes);
    return result;
}

API int cuMemFree_v2(uint64_t address) {
    CHECK(-1);
    free((void *)(uintptr_t)address);
    say(__func__, SUCCESS, "");
    return SUCCESS;
}

API int cuCtxEnablePeerAccess(void *peer, unsigned flags) {
    static unsigned char enabled[MOST_DEVICES][MOST_DEVICES];
    CHECK(-1);
    if (!current) return INVALID_CONTEXT;
    unsigned char *was = &enabled[current->ordinal][((Device *)peer)->ordinal];
    int result = flags || peer == current ? INVALID_VALUE : *was ? PEER_ALREADY_ENABLED : SUCCESS;
    if (!result) *was = 1;
    say(__func__, result, "peer=%d", ((Device *)peer)->ordinal);
    return result;
}

/* A handle holds the address, which another process cannot use: it is opened, never read. */
typedef struct { uint64_t words[8]; } Ipc;

API int cuIpcGetMemHandle(Ipc *handle, uint64_t address) {
    CHECK(-1);
    if (!current) return INVALID_CONTEXT;
    *handle = (Ipc){{0x1bc, address}};
    say(__func__, SUCCESS, "");
    return SUCCESS;
}

API int cuIpcOpenMemHandle_v2(uint64_t *address, Ipc handle, unsigned flags) {
    CHECK(-1);
    int result = !current ? INVALID_CONTEXT : handle.words[0] != 0x1bc ? INVALID_HANDLE : flags != 1 ? INVALID_VALUE : SUCCESS;
    if (!result) *address = handle.words[1] + 0x1000;
    say(__func__, result, "");
    return result;
}

API int cuIpcCloseMemHandle(uint64_t address) {
    CHECK(-1);
    say(__func__, SUCCESS, "address=%llx", (unsigned long long)address);
    return SUCCESS;
}

API int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
    CHECK(-1);
    if (!current) return INVALID_CONTEXT;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return SUCCESS;
}

API int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
    CHECK(-1);
    if (!current) return INVALID_CONTEXT;
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return SUCCESS;
}

API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    CHECK(-1);
    int result = current ? SUCCESS : INVALID_CONTEXT;
    if (!result) memcpy(to, (void *)(uintptr_t)from, bytes);
    say(__func__, result, "bytes=%zu stream=%p", bytes, stream);
    return result;
}

typedef struct {
    size_t from_x, from_y;
    int from_kind;
    const void *from_host;
    uint64_t from_device;
    void *from_array;
    size_t from_pitch, to_x, to_y;
    int to_kind;
    void *to_host;
    uint64_t to_device;
    void *to_array;
    size_t to_pitch, width, height;
} Copy2D;

API int cuMemcpy2DAsync_v2(const Copy2D *c, void *stream) {
    CHECK(-1);
    int result = !current ? INVALID_CONTEXT : c->from_pitch < c->width || c->to_pitch < c->width ? INVALID_VALUE : SUCCESS;
    for (size_t row = 0; !result && row < c->height; row++)
        memcpy((char *)c->to_host + row * c->to_pitch, (char *)(uintptr_t)c->from_device + row * c->from_pitch, c->width);
    say(__func__, result, "width=%zu height=%zu pitch=%zu stream=%p", c->width, c->height, c->from_pitch, stream);
    return result;
}

API int cuStreamSynchronize(void *stream) {
    CHECK(-1);
    int result = current ? SUCCESS : INVALID_CONTEXT;
    say(__func__, result, "stream=%p", stream);
    return result;
}

static int handle_of_context(const char *function, void **out) {
    int result = ready(function, -1);
    if (!result && !current) result = INVALID_CONTEXT;
    if (!result) *out = malloc(1);
    return result;
}

API int cuStreamCreate(void **stream, unsigned flags) {
    (void)flags;
    return handle_of_context(__func__, stream);
}

/* A graph remembers nothing: launches of a stream that is captured are logged and compute nothing anyway. */
API int cuStreamBeginCapture_v2(void *stream, int capture_mode) {
    CHECK(-1);
    int result = !stream ? CAPTURE_UNSUPPORTED : SUCCESS;
    say(__func__, result, "mode=%d", capture_mode);
    return result;
}

API int cuStreamEndCapture(void *stream, void **graph) {
    (void)stream;
    int result = handle_of_context(__func__, graph);
    say(__func__, result, "");
    return result;
}

API int cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
    (void)graph, (void)flags;
    return handle_of_context(__func__, executable);
}

API int cuGraphLaunch(void *executable, void *stream) {
    CHECK(-1);
    say(__func__, SUCCESS, "stream=%p", stream);
    return executable ? SUCCESS : INVALID_HANDLE;
}

API int cuGraphExecDestroy(void *executable) {
    CHECK(-1);
    free(executable);
    return SUCCESS;
}

API int cuGraphDestroy(void *graph) {
    CHECK(-1);
    free(graph);
    return SUCCESS;
}

API int cuEventCreate(void **event, unsigned flags) {
    (void)flags;
    int result = handle_of_context(__func__, event);
    say(__func__, result, "");
    return result;
}

API int cuEventRecord(void *event, void *stream) {
    (void)stream;
    CHECK(-1);
    return event ? SUCCESS : INVALID_HANDLE;
}

API int cuEventSynchronize(void *event) {
    CHECK(-1);
    return !event ? INVALID_HANDLE : forbidden() ? CAPTURE_UNSUPPORTED : SUCCESS;
}

API int cuEventElapsedTime(float *milliseconds, void *from, void *to) {
    CHECK(-1);
    *milliseconds = 1;
    return from && to ? SUCCESS : INVALID_HANDLE;
}

API int cuEventDestroy_v2(void *event) {
    CHECK(-1);
    free(event);
    say(__func__, SUCCESS, "");
    return SUCCESS;
}
