/*
 * An NVRTC that fails as compilers do: a library with the functions that Parbake calls. Beside it must lie a file named
 * `libnvrtc-builtins.so.13.0`, which may be this library once more.
 *
 *   PARBAKE_TEST_FAKE_MODE   partial, empty, garbage, other (a good image of FAKE_IMAGE), fail, lost (success, but no image)
 *   FAKE_IMAGE  a cubin
 *   PARBAKE_TEST_FAKE_LOG    file: a line for each compilation
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char *image;
    size_t size;
    char log[64];
} Program;

static const char *mode(void) {
    const char *mode = getenv("PARBAKE_TEST_FAKE_MODE");
    return mode ? mode : "other";
}
static int is(const char *name) { return strcmp(mode(), name) == 0; }

int nvrtcVersion(int *major, int *minor) {
    *major = 13;
    *minor = 0;
    return 0;
}
int nvrtcGetNumSupportedArchs(int *count) {
    *count = 3;
    return 0;
}
int nvrtcGetSupportedArchs(int *archs) {
    archs[0] = 80;
    archs[1] = 90;
    archs[2] = 100;
    return 0;
}
const char *nvrtcGetErrorString(int code) { return code == 6 ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR"; }

int nvrtcCreateProgram(Program **program, const char *text, const char *name, int count, const char *const *texts,
                       const char *const *names) {
    (void)text, (void)name, (void)count, (void)texts, (void)names;
    *program = calloc(1, sizeof **program);
    return *program ? 0 : 1;
}
int nvrtcDestroyProgram(Program **program) {
    free((*program)->image);
    free(*program);
    *program = NULL;
    return 0;
}
int nvrtcCompileProgram(Program *program, int count, const char *const *options) {
    (void)count, (void)options;
    FILE *log = getenv("PARBAKE_TEST_FAKE_LOG") ? fopen(getenv("PARBAKE_TEST_FAKE_LOG"), "a") : NULL;
    if (log) {
        fprintf(log, "nvrtc %s\n", mode());
        fclose(log);
    }
    if (is("fail")) {
        strcpy(program->log, "unit.cu(3): error: boom");
        return 6;
    }
    if (is("empty")) return 0;
    program->image = calloc(1, 1 << 20);
    FILE *image = is("garbage") || !getenv("FAKE_IMAGE") ? NULL : fopen(getenv("FAKE_IMAGE"), "r");
    program->size = image ? fread(program->image, 1, 1 << 20, image) : 5000;
    if (image) fclose(image);
    if (is("partial")) program->size /= 2;
    return 0;
}
int nvrtcGetProgramLogSize(Program *program, size_t *size) {
    *size = strlen(program->log) + 1;
    return 0;
}
int nvrtcGetProgramLog(Program *program, char *log) {
    strcpy(log, program->log);
    return 0;
}
int nvrtcGetCUBINSize(Program *program, size_t *size) {
    *size = program->size;
    return is("lost") ? 9 : 0;
}
int nvrtcGetCUBIN(Program *program, char *image) {
    memcpy(image, program->image ? program->image : "", program->size);
    return 0;
}
int nvrtcGetPTXSize(Program *program, size_t *size) { return nvrtcGetCUBINSize(program, size); }
int nvrtcGetPTX(Program *program, char *image) { return nvrtcGetCUBIN(program, image); }
