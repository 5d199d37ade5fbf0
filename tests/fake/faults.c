/*
 * A preload library that makes file operations fail, shifts the clock, and records what a process opens and connects to.
 *
 *   FAULTS         rules, blank between them: `<operation>:<error>:<when>`. Operations: open (for reading), create (any
 *                  other open), list (of a folder), rename, mkdir, lock, write, sync. When: `50` percent of the calls,
 *                  or `#3`, the third one only.
 *   FAULTS_BELOW   only paths that start so
 *   FAULTS_SEED    a number; the same one gives the same faults
 *   FAULTS_CLOCK   seconds to add to the time of day
 *   FAULTS_RECORD  file: a line for each socket, connect, file created, library opened
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

static const struct {
    const char *name;
    int number;
} ERRORS[] = {{"ESTALE", ESTALE}, {"ENOENT", ENOENT}, {"EBUSY", EBUSY},   {"ENOLCK", ENOLCK}, {"ENOSYS", ENOSYS},
              {"EROFS", EROFS},   {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EIO", EIO},       {"EACCES", EACCES},
              {"EXDEV", EXDEV},   {"EINTR", EINTR}};

static uint64_t state;
static unsigned calls[64];

static unsigned percent(void) {
    uint64_t old = __atomic_load_n(&state, __ATOMIC_RELAXED), next;
    do {
        next = old ? old : 0x9e3779b97f4a7c15u ^ strtoull(getenv("FAULTS_SEED") ? getenv("FAULTS_SEED") : "1", 0, 10);
        next ^= next << 13;
        next ^= next >> 7;
        next ^= next << 17;
    } while (!__atomic_compare_exchange_n(&state, &old, next, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return (unsigned)(next >> 33) % 100;
}

/* Whether this call fails, and then with `errno` set. */
static int fails(const char *operation, const char *path) {
    const char *rules = getenv("FAULTS"), *below = getenv("FAULTS_BELOW");
    if (!rules || !path || (below && strncmp(path, below, strlen(below)) != 0)) return 0;
    char text[512];
    snprintf(text, sizeof text, "%s", rules);
    unsigned number = 0;
    char *rest = NULL;
    for (char *rule = strtok_r(text, " ", &rest); rule; rule = strtok_r(NULL, " ", &rest), number++) {
        char name[16], error[16], when[16];
        if (sscanf(rule, "%15[^:]:%15[^:]:%15s", name, error, when) != 3 || strcmp(name, operation) != 0) continue;
        unsigned call = __atomic_add_fetch(&calls[number % 64], 1, __ATOMIC_RELAXED);
        int hit = when[0] == '#' ? call == strtoul(when + 1, NULL, 10) : percent() < strtoul(when, NULL, 10);
        for (size_t i = 0; hit && i < sizeof ERRORS / sizeof *ERRORS; i++)
            if (strcmp(error, ERRORS[i].name) == 0) {
                errno = ERRORS[i].number;
                return 1;
            }
    }
    return 0;
}

static int fails_fd(const char *operation, int fd) {
    if (!getenv("FAULTS")) return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return fails(operation, path);
}

/* One line, one write, no function that may be ours. */
static void record(const char *what, const char *text) {
    const char *file = getenv("FAULTS_RECORD");
    if (!file) return;
    int kept = errno;
    char line[4200];
    int length = snprintf(line, sizeof line, "%s %s\n", what, text ? text : "");
    long fd = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd >= 0) {
        if (length > 0) syscall(SYS_write, fd, line, (size_t)length);
        syscall(SYS_close, fd);
    }
    errno = kept;
}

static int refused(const char *path, int flags) {
    int writes = (flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT;
    if (fails(writes ? "create" : "open", path)) return 1;
    if (flags & O_CREAT) record("create", path);
    return 0;
}

#define MODE(flags)                                         \
    mode_t mode = 0;                                        \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                \
        va_list list;                                       \
        va_start(list, flags);                              \
        mode = (mode_t)va_arg(list, int);                   \
        va_end(list);                                       \
    }

int open(const char *path, int flags, ...) {
    MODE(flags)
    return refused(path, flags) ? -1 : REAL(open)(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE(flags)
    return refused(path, flags) ? -1 : REAL(open64)(path, flags, mode);
}
int openat(int folder, const char *path, int flags, ...) {
    MODE(flags)
    return refused(path, flags) ? -1 : REAL(openat)(folder, path, flags, mode);
}
int openat64(int folder, const char *path, int flags, ...) {
    MODE(flags)
    return refused(path, flags) ? -1 : REAL(openat64)(folder, path, flags, mode);
}
DIR *opendir(const char *path) { return fails("list", path) ? NULL : REAL(opendir)(path); }
int rename(const char *from, const char *to) {
    return fails("rename", from) || fails("rename", to) ? -1 : REAL(rename)(from, to);
}
int mkdir(const char *path, mode_t mode) {
    if (fails("mkdir", path)) return -1;
    record("create", path);
    return REAL(mkdir)(path, mode);
}
int flock(int fd, int operation) { return fails_fd("lock", fd) ? -1 : REAL(flock)(fd, operation); }
ssize_t write(int fd, const void *bytes, size_t size) {
    return fails_fd("write", fd) ? -1 : REAL(write)(fd, bytes, size);
}
int fsync(int fd) { return fails_fd("sync", fd) ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return fails_fd("sync", fd) ? -1 : REAL(fdatasync)(fd); }

int socket(int domain, int type, int protocol) {
    char text[16];
    snprintf(text, sizeof text, "%d", domain);
    record("socket", text);
    return REAL(socket)(domain, type, protocol);
}
int connect(int fd, const struct sockaddr *address, socklen_t size) {
    record("connect", address && address->sa_family == AF_UNIX ? "unix" : "inet");
    return REAL(connect)(fd, address, size);
}
void *dlopen(const char *path, int flags) {
    record("dlopen", path);
    return REAL(dlopen)(path, flags);
}

static time_t shift(void) {
    const char *seconds = getenv("FAULTS_CLOCK");
    return seconds ? (time_t)strtoll(seconds, NULL, 10) : 0;
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    int code = REAL(clock_gettime)(clock, now);
    if (code == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return code;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int code = REAL(gettimeofday)(now, zone);
    if (code == 0) now->tv_sec += shift();
    return code;
}
time_t time(time_t *now) {
    time_t seconds = REAL(time)(NULL) + shift();
    if (now) *now = seconds;
    return seconds;
}
