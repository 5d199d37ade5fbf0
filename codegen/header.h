/*
 * Parbake: GPU kernels baked ahead for the architectures you have, and finished on demand. The C ABI, for C11 and C++17.
 *
 * Link with libparbake.so. Nothing happens before the first call: loading the library opens no file, touches no device
 * and starts no thread.
 *
 *     parbake_library *library;
 *     parbake_error *error;
 *     if (parbake_default(&library, &error) != PARBAKE_OK ||
 *         parbake_rmsnorm(library, stream, NULL, &out, &x, &weight, PARBAKE_RMSNORM_EPS_DEFAULT, 0.0, &error)) {
 *         fprintf(stderr, "%s\n", parbake_error_message(error));
 *         parbake_error_free(error);
 *     }
 *
 * Functions may be called from any thread at any time, except as said of parbake_close. None throws, and none ends the
 * process.
 *
 * Every function that can fail gives PARBAKE_OK or the kind of the error. Its last argument may be null; else it is set
 * to null, or to an error that the caller frees. What the pointer held before is not looked at and not freed.
 */
#ifndef PARBAKE_H_
#define PARBAKE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The version of the library that this header belongs to. */
#define PARBAKE_VERSION_MAJOR @MAJOR@
#define PARBAKE_VERSION_MINOR @MINOR@
#define PARBAKE_VERSION_PATCH @PATCH@
#define PARBAKE_VERSION "@VERSION@"

/* The ABI of this header. A program runs with a library whose parbake_abi() is the same. */
#define PARBAKE_ABI @ABI@

#ifndef PARBAKE_API
#if defined(__GNUC__)
#define PARBAKE_API __attribute__((visibility("default")))
#else
#define PARBAKE_API
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Tensors ---- */

/*
 * A view of memory that the caller owns. The layout is that of DLPack's DLTensor: where dlpack.h was included before this
 * header, parbake_tensor is that type; elsewhere it is declared here, with the same field names, and a pointer to a
 * DLTensor may be cast to it.
 */
#ifdef DLPACK_DLPACK_H_
typedef DLTensor parbake_tensor;
#else
/** Where memory is: one of the PARBAKE_DEVICE numbers below, and which of that kind. */
typedef struct {
    int32_t device_type;
    int32_t device_id;
} parbake_device;

/** An element type: kind of number, bits, and 1 lane. */
typedef struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} parbake_dtype;

/** A tensor. */
typedef struct {
    /** Where the memory begins; null only if there is no element. */
    void *data;
    /** Where it is. */
    parbake_device device;
    /** Number of dimensions, at most 8. */
    int32_t ndim;
    /** Element type. */
    parbake_dtype dtype;
    /** Extents, ndim of them, each 0 or more. */
    int64_t *shape;
    /** Strides in elements, ndim of them; null if dense, the last dimension fastest. */
    int64_t *strides;
    /** Bytes from data to the first element. */
    uint64_t byte_offset;
} parbake_tensor;
#endif

/* Kinds of devices, as DLPack numbers them: CPU memory, CUDA memory, pinned CPU memory, managed CUDA memory. */
#define PARBAKE_DEVICE_CPU 1
#define PARBAKE_DEVICE_CUDA 2
#define PARBAKE_DEVICE_CUDA_HOST 3
#define PARBAKE_DEVICE_CUDA_MANAGED 13

/* Element types: `tensor.dtype.code = PARBAKE_BF16_CODE; tensor.dtype.bits = PARBAKE_BF16_BITS; tensor.dtype.lanes = 1`. */
@DTYPES@

/* ---- Errors ---- */

/** What a function gives, and parbake_error_kind. */
enum {
    /** Done. */
    PARBAKE_OK = 0,
    /** An argument of the wrong type: a null pointer for a tensor, or another element type. */
    PARBAKE_ERROR_TYPE = 1,
    /** A value that does not fit: shape, stride, device, overlap, range, an unknown name. */
    PARBAKE_ERROR_VALUE = 2,
    /** The combination does not exist for this op or target. */
    PARBAKE_ERROR_NOT_IMPLEMENTED = 3,
    /** No bundle and no store has the kernel, and it may not or cannot be compiled. */
    PARBAKE_ERROR_NOT_COVERED = 4,
    /** Everything else: the driver, a file, a bug. */
    PARBAKE_ERROR_OTHER = 5
};

/** What went wrong. */
typedef struct parbake_error parbake_error;

/** The kind; PARBAKE_OK for null. */
PARBAKE_API int parbake_error_kind(const parbake_error *error);

/** The code, "PB-2001", which keeps its meaning for good; "" for null. Lives as long as the error. */
PARBAKE_API const char *parbake_error_code(const parbake_error *error);

/**
 * The whole text, several lines of UTF-8: code, op, argument, what was expected, what came, what to do; "" for null. Lives
 * as long as the error.
 */
PARBAKE_API const char *parbake_error_message(const parbake_error *error);

/** Frees an error; null is allowed. */
PARBAKE_API void parbake_error_free(parbake_error *error);

/** Frees a text that a function gave; null is allowed. */
PARBAKE_API void parbake_text_free(char *text);

/* ---- The library ---- */

/** All ops, the bundles and the store that kernels are found in, and the kernels loaded so far. */
typedef struct parbake_library parbake_library;

/** The version of the library that is loaded, "@VERSION@". */
PARBAKE_API const char *parbake_version(void);

/** The ABI of the library that is loaded; a program compares it with PARBAKE_ABI. */
PARBAKE_API unsigned parbake_abi(void);

/** The contract between the library and compiled kernels: bundles made for another number are refused. */
PARBAKE_API unsigned parbake_launch_abi(void);

/**
 * Lends the library of this process, opened by whoever needs it first with the settings in the environment
 * (PARBAKE_BUNDLES, PARBAKE_JIT and so on). It is never closed. Fails if a setting or a bundle cannot be used; the next
 * call then tries again.
 */
PARBAKE_API int parbake_default(parbake_library **library, parbake_error **error);

/**
 * Opens a library of the caller's own.
 *
 * The environment's PARBAKE_ settings do not hold for it; what is not given has its default. Of the environment only the
 * folders of the user (HOME, XDG_CACHE_HOME, XDG_DATA_HOME, XDG_DATA_DIRS) and what compilers need (PATH, CUDA_HOME) are
 * read.
 *
 *   @param settings count pairs of texts, name and value: {"PARBAKE_JIT", "off", "PARBAKE_BUNDLES", "/srv/norm.pbk"}. Of
 *     two pairs with one name the later holds; an unknown name is an error. May be null if count is 0.
 *   @param library set to the library, or to null.
 */
PARBAKE_API int parbake_open(
    const char *const *settings, size_t count, parbake_library **library, parbake_error **error);

/**
 * Closes a library of parbake_open. No call with it may be running in another thread, and none may follow. Work that was
 * launched before goes on: code that was loaded stays loaded until the process ends. Null and the library of
 * parbake_default are left as they are.
 */
PARBAKE_API void parbake_close(parbake_library *library);

/* ---- Questions ---- */

/*
 * About specs: an op with a value for each axis. `op` is a name, "rmsnorm" or "norm/rmsnorm". `values` are name=value,
 * white space between, "dtype=bf16 block=512"; null is none. Tactics that are not named take their default. `target` is
 * an architecture, "sm_90a" or "90a", or "host"; null or "auto" is what is in this machine, and an error (PB-2110,
 * PB-2101) without a GPU. With a target, no device is touched.
 *
 * An answer is JSON, the document that the command line prints with --json. It is freed with parbake_text_free, and null
 * after an error.
 */

/**
 * Whether and from where a spec would be served, for the first device here or a target. Nothing is compiled or loaded.
 * The document is that of `parbake supports --json`: "support" is "bundle", "store", "jit", "not_covered" or
 * "unsupported". The last two are answers, not errors.
 */
PARBAKE_API int parbake_supports(
    parbake_library *library, const char *op, const char *values, const char *target,
    char **json, parbake_error **error);

/**
 * From where a spec would be served, why not from elsewhere, and what its identities are made of. The document is that of
 * `parbake why --json`.
 */
PARBAKE_API int parbake_explain(
    parbake_library *library, const char *op, const char *values, const char *target,
    char **json, parbake_error **error);

/**
 * Has every tactic of ops ready, compiling what is missing on several threads, so that no later call waits: before a
 * server takes requests, before a graph is captured. For the devices here, and "host", kernels are loaded into this
 * process; for another target they are put into the store unless a bundle has them. All gaps are told at once
 * (PARBAKE_ERROR_NOT_COVERED, PB-2004), and then nothing is done. The document is that of `parbake prepare --json`.
 *
 *   @param op may be a pattern with * and ?, or several with commas between; all values hold for each op that matches.
 */
PARBAKE_API int parbake_prepare(
    parbake_library *library, const char *op, const char *values, const char *target,
    char **json, parbake_error **error);

/**
 * The number of a snippet: a caller's own source for an axis of an op that is open to one, such as `score` of
 * batch_attention, which takes the number as its argument `score`. The functions here hand over no values of parameters:
 * a snippet that has any is for callers through TVM FFI and Rust.
 *
 *   @param snippet JSON: {"name": "soft_cap", "functions": {"score": "return 30.f * tanhf(x / 30.f);"}}.
 *   @param number set to the number, which holds for this library and op as long as the library is open; or to 0.
 */
PARBAKE_API int parbake_snippet(
    parbake_library *library, const char *op, const char *snippet, int32_t *number, parbake_error **error);

/**
 * Sets the level of the API log for all libraries of this process, from the next call on: 0 is off, 1 names calls, 3 adds
 * arguments, 5 statistics, 10 dumps of whole calls. It holds against PARBAKE_LOG. Gives PARBAKE_OK, or
 * PARBAKE_ERROR_VALUE for a number that is no level.
 */
PARBAKE_API int parbake_set_log_level(int level);

/* ---- Groups ---- */

/*
 * Memory that the ranks of a group reach, for the collectives: all_reduce and its kin. Every rank makes a pool of the same
 * size, gives its handle to the others by whatever channel they have, and opens the handles of all. Ranks are processes of
 * one host, or threads of one process. What a rank passes to an op is its pool as a tensor of int32, and the addresses as
 * one of int64 in memory of its device.
 */

/** The pool of a rank. */
typedef struct parbake_pool parbake_pool;

/** Bytes of a handle, and the most ranks of a group. */
#define PARBAKE_POOL_HANDLE 160
#define PARBAKE_MAX_RANKS 8

/**
 * Makes a pool of zeroed memory.
 *
 *   @param device a CUDA device, or -1 for CPU memory, which only threads of one process share.
 *   @param memory set to where it begins.
 *   @param pool set to the pool, or to null.
 */
PARBAKE_API int parbake_pool_new(
    int32_t device, size_t bytes, void **memory, parbake_pool **pool, parbake_error **error);

/** Writes what other ranks open the pool by, PARBAKE_POOL_HANDLE bytes. */
PARBAKE_API int parbake_pool_handle(const parbake_pool *pool, void *handle, parbake_error **error);

/**
 * Opens the pools of all ranks. Fails if they do not go together, or cannot be reached (PB-2160 to PB-2163).
 *
 *   @param handles those of all ranks, one after the other; this one's among them.
 *   @param addresses set to where the pools are for this rank, ranks of them.
 */
PARBAKE_API int parbake_pool_open(
    parbake_pool *pool, int32_t rank, int32_t ranks, const void *handles, int64_t *addresses, parbake_error **error);

/** Frees a pool, and closes what it opened. The work of all ranks with it is done. Null is allowed. */
PARBAKE_API void parbake_pool_free(parbake_pool *pool);

/* ---- For packages that bring this library ---- */

/**
 * Folders of bundles that were installed with it, `:` between, looked in by every library that is opened later. Without
 * this call it is the folder parbake_bundles beside the package that this file lies in. Called before parbake_default;
 * gives 0, or 1 if that is open already and it is too late for it.
 */
PARBAKE_API int parbake_use_bundles(const char *folders);

/**
 * The value that a setting has in the library of this process unless the environment
 * sets it. Gives 0, or 1 if the library is open already and it is too late.
 */
PARBAKE_API int parbake_set_default(const char *setting, const char *value);

/*
 * ---- Ops ----
 *
 * Common to all:
 *
 *   library  lent by parbake_default or opened by parbake_open.
 *   stream   a CUstream or cudaStream_t of the tensors' device; null is the default stream. The work is queued there and
 *            the function returns; tensors must stay valid until the stream has passed it. Ignored for "host".
 *   target   null or "auto": where the tensors are, which must be a CUDA device. "host": tensors in CPU memory, computed
 *            before the function returns, for tests rather than speed.
 *
 * All tensors of a call are on one device. Everything is checked before anything is launched: after an error no output
 * was written. Which device is current in the calling thread does not matter and does not change. No rows are no work and
 * no error.
 *
 * Errors: PARBAKE_ERROR_TYPE and _VALUE (PB-2001, all that does not fit at once; PB-2150), _NOT_IMPLEMENTED (PB-1109),
 * _NOT_COVERED (PB-2002), _OTHER (the driver, a bundle, the store, a compiler).
 */

@OPS@
#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PARBAKE_H_ */
