/*
 * What a C program can do wrong, and what it then learns: each call that must fail gives the right kind and code, names
 * the argument, and leaves its outputs as they were. Ends with the number of checks that failed.
 */
#include "parbake.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 3, HIDDEN = 8, ALL = ROWS * HIDDEN };

static int failed = 0;

static void check(int holds, const char *name, const char *what) {
    if (!holds) {
        failed++;
        printf("%s: %s\n", name, what);
    }
}

/* The arguments of a call; each case changes some of a good one. */
struct call {
    parbake_library *library;
    const char *target;
    float out[ALL], x[ALL], weight[HIDDEN];
    int64_t shape[3][3], strides[3][3];
    parbake_tensor tensors[3];
    const parbake_tensor *given[3];
    double eps, weight_bias;
};

static void good(struct call *c, parbake_library *library) {
    float *data[3] = {c->out, c->x, c->weight};
    memset(c, 0, sizeof *c);
    c->library = library;
    c->target = "host";
    c->eps = PARBAKE_RMSNORM_EPS_DEFAULT;
    c->weight_bias = PARBAKE_RMSNORM_WEIGHT_BIAS_DEFAULT;
    for (int i = 0; i < ALL; i++) {
        c->out[i] = -7.0f;
        c->x[i] = (float)(i % 5) - 1.5f;
    }
    for (int i = 0; i < HIDDEN; i++) {
        c->weight[i] = 1.0f + (float)i / 8;
    }
    for (int t = 0; t < 3; t++) {
        parbake_tensor *tensor = &c->tensors[t];
        tensor->data = data[t];
        tensor->device.device_type = PARBAKE_DEVICE_CPU;
        tensor->ndim = t == 2 ? 1 : 2;
        tensor->dtype.code = PARBAKE_F32_CODE;
        tensor->dtype.bits = PARBAKE_F32_BITS;
        tensor->dtype.lanes = 1;
        c->shape[t][0] = t == 2 ? HIDDEN : ROWS;
        c->shape[t][1] = HIDDEN;
        c->strides[t][0] = t == 2 ? 1 : HIDDEN;
        c->strides[t][1] = 1;
        tensor->shape = c->shape[t];
        tensor->strides = c->strides[t];
        c->given[t] = tensor;
    }
}

static int run(struct call *c, parbake_error **error) {
    return parbake_rmsnorm(
        c->library, NULL, c->target, c->given[0], c->given[1], c->given[2], c->eps, c->weight_bias, error);
}

/* What out must hold after a good call. */
static int right(const struct call *c) {
    for (int row = 0; row < ROWS; row++) {
        double sum = 0;
        for (int i = 0; i < HIDDEN; i++) {
            double v = c->x[row * HIDDEN + i];
            sum += v * v;
        }
        for (int i = 0; i < HIDDEN; i++) {
            double expected = c->x[row * HIDDEN + i] / sqrt(sum / HIDDEN + c->eps) * (c->weight[i] + c->weight_bias);
            double got = c->out[row * HIDDEN + i];
            if (!(fabs(got - expected) <= 1e-6 + 1e-5 * fabs(expected))) {
                return 0;
            }
        }
    }
    return 1;
}

static int untouched(const struct call *c) {
    for (int i = 0; i < ALL; i++) {
        if (c->out[i] != -7.0f) {
            return 0;
        }
    }
    return 1;
}

/* A call that must succeed. */
static void fine(const char *name, struct call *c) {
    parbake_error *error = (parbake_error *)&failed;
    int result = run(c, &error);
    check(result == PARBAKE_OK && error == NULL, name, parbake_error_message(error));
    check(right(c), name, "wrong numbers");
    parbake_error_free(error);
}

/* An answer that must hold a text. */
static void says(const char *name, int result, char *json, parbake_error *error, const char *words) {
    check(result == PARBAKE_OK && error == NULL, name, parbake_error_message(error));
    check(json != NULL && strstr(json, words) != NULL, name, json != NULL ? json : "no answer");
    parbake_error_free(error);
    parbake_text_free(json);
}

static void is(const char *name, int result, parbake_error *error, int kind, const char *code, const char *words) {
    check(result == kind, name, "another result");
    check(parbake_error_kind(error) == kind, name, "another kind");
    check(strcmp(parbake_error_code(error), code) == 0, name, parbake_error_code(error));
    check(strstr(parbake_error_message(error), words) != NULL, name, parbake_error_message(error));
    parbake_error_free(error);
}

/* Fails as said, twice: with and without somebody who asks why. */
static void fails(const char *name, struct call *c, int kind, const char *code, const char *words) {
    parbake_error *error = (parbake_error *)&failed;
    int result = run(c, &error);
    is(name, result, error, kind, code, words);
    check(run(c, NULL) == kind, name, "another result without an error");
    check(untouched(c), name, "the output was written");
}

static void arguments(parbake_library *library) {
    const int type = PARBAKE_ERROR_TYPE, value = PARBAKE_ERROR_VALUE;
    struct call c;
#define CASE(name, change, kind, words) good(&c, library), change, fails(name, &c, kind, "PB-2001", words)
    CASE("dtype", c.tensors[1].dtype.code = 4, type, "x: dtype: expected f16 or bf16 or f32, got bf32");
    CASE("other dtype", (c.tensors[1].dtype.bits = 16), type, "x: dtype");
    CASE("lanes", c.tensors[0].dtype.lanes = 4, type, "out: dtype");
    CASE("shape", c.shape[1][0] = 2, value, "x: shape: expected rows = 3");
    CASE("hidden", c.shape[2][0] = 7, value, "weight: shape: expected hidden = 8");
    CASE("negative extent", c.shape[1][0] = -3, value, "x: shape: expected extents of 0 or more, got -3");
    CASE("no columns", c.shape[0][1] = c.shape[1][1] = c.shape[2][0] = 0, value, "hidden from 1 to 65536, got 0");
    CASE("no dimensions", c.tensors[2].ndim = 0, value, "weight: rank");
    CASE("ndim -1", c.tensors[1].ndim = -1, value, "x: rank: expected at most 8 dimensions, got -1");
    CASE("ndim 9", c.tensors[1].ndim = 9, value, "x: rank");
    CASE("device", c.tensors[1].device.device_type = PARBAKE_DEVICE_CUDA, value, "x: device: expected cpu");
    CASE("strange device", c.tensors[1].device.device_type = 7, value, "x: device");
    CASE("stride", c.strides[1][1] = 2, value, "x: stride: expected 1 in dimension 1");
    CASE("overlapping rows", c.strides[0][0] = 4, value, "out: stride: expected at least 8");
    CASE("alias", c.tensors[0].data = c.x + 1, value, "out: aliasing");
    CASE("alias of weight", c.tensors[2].data = c.out, value, "out: aliasing: expected no overlap with `weight`");
    CASE("no data", c.tensors[1].data = NULL, value, "x: pointer: expected memory, got null");
    CASE("unaligned", c.tensors[1].byte_offset = 2, value, "x: pointer: expected aligned to 4 bytes");
    CASE("no shape", c.tensors[1].shape = NULL, value, "x: shape: expected 2 extents, got a null pointer");
    CASE("no tensor", c.given[1] = NULL, type, "x: type: expected a tensor, got a null pointer");
    CASE("negative eps", c.eps = -1e-6, value, "eps: value: expected 0 to 1, got -0.000001");
    CASE("eps is no number", c.eps = NAN, value, "eps: value: expected 0 to 1, got NaN");
    CASE("endless bias", c.weight_bias = INFINITY, value, "weight_bias: value");
    CASE("target", c.target = "hots", value, "target: value: expected auto or host, got hots");
    CASE("CPU tensors unasked", c.target = NULL, value, "target=\"host\" to run on the CPU");
    CASE("auto", c.target = "auto", value, "x: device: expected a CUDA device");
#undef CASE
    good(&c, library), c.library = NULL;
    fails("no library", &c, value, "PB-2150", "parbake_rmsnorm: an argument cannot be used");

    /* What is right, near what is wrong. */
    good(&c, library), fine("a good call", &c);
    good(&c, library), c.tensors[0].strides = c.tensors[1].strides = c.tensors[2].strides = NULL, fine("dense", &c);
    good(&c, library), c.weight_bias = 1, c.eps = 0.25, fine("scalars", &c);
    good(&c, library), c.tensors[1].data = c.x - 2, c.tensors[1].byte_offset = 2 * sizeof(float), fine("offset", &c);
    good(&c, library), c.tensors[1].device.device_type = PARBAKE_DEVICE_CUDA_HOST, fine("pinned", &c);
    good(&c, library), c.shape[0][0] = c.shape[1][0] = 0;
    check(run(&c, NULL) == PARBAKE_OK && untouched(&c), "no rows", "they are no work and no error");
    /* Three dimensions, of which the first two are the rows. */
    good(&c, library);
    for (int t = 0; t < 2; t++) {
        const int64_t shape[3] = {1, ROWS, HIDDEN}, strides[3] = {99, HIDDEN, 1};
        memcpy(c.shape[t], shape, sizeof shape);
        memcpy(c.strides[t], strides, sizeof strides);
        c.tensors[t].ndim = 3;
    }
    fine("three dimensions", &c);
}

static void libraries(parbake_library *library) {
    const int value = PARBAKE_ERROR_VALUE;
    parbake_error *error;
    parbake_library *same = NULL, *own = NULL;
    int result;
    check(parbake_default(&same, NULL) == PARBAKE_OK && same == library, "default", "there are two");
    result = parbake_default(NULL, &error);
    is("default without room", result, error, value, "PB-2150", "library: expected room");
    parbake_close(library);
    parbake_close(NULL);

    const char *const settings[] = {"PARBAKE_JIT", "on", "PARBAKE_CACHE", "off", "PARBAKE_JIT", "off"};
    check(parbake_open(settings, 3, &own, NULL) == PARBAKE_OK && own != NULL, "open", "it failed");
    struct call c;
    good(&c, own);
    /* Settings of its own: nothing is covered, and nothing may be compiled. */
    fails("not covered", &c, PARBAKE_ERROR_NOT_COVERED, "PB-2002", "JIT is off");
    good(&c, library), fine("the default library", &c);
    parbake_close(own);

    const char *const unknown[] = {"PARBAKE_JITT", "on"};
    result = parbake_open(unknown, 1, &own, &error);
    is("unknown setting", result, error, value, "PB-2150", "as in PARBAKE_JIT");
    check(own == NULL, "unknown setting", "a library was given");
    const char *const bad[] = {"PARBAKE_JIT", "maybe"};
    result = parbake_open(bad, 1, &own, &error);
    is("bad setting", result, error, value, "PB-1001", "PARBAKE_JIT");
    const char *const hole[] = {"PARBAKE_JIT", NULL};
    result = parbake_open(hole, 1, &own, &error);
    is("no value", result, error, value, "PB-2150", "expected a text, got a null pointer");
    result = parbake_open(NULL, 1, &own, &error);
    is("no settings", result, error, value, "PB-2150", "settings: expected 1 names");
    const char *const bundle[] = {"PARBAKE_BUNDLES", "/nowhere/norm.pbk"};
    result = parbake_open(bundle, 1, &own, &error);
    is("no bundle", result, error, PARBAKE_ERROR_OTHER, "PB-1301", "/nowhere/norm.pbk");
}

static void questions(parbake_library *library) {
    const int value = PARBAKE_ERROR_VALUE;
    parbake_error *error;
    char *json = NULL;
    int result = parbake_prepare(library, "rms?orm, rmsnorm", "dtype=f32  block=128 rows=8\tvec=4", "host", &json, &error);
    says("prepare", result, json, error, "\"ready\"");
    result = parbake_supports(library, "rmsnorm", "dtype=f32 block=128 rows=8 vec=4", "host", &json, &error);
    says("supports", result, json, error, "\"support\": \"store\"");
    result = parbake_supports(library, "norm/rmsnorm", "dtype=bf16", "75", &json, &error);
    says("unsupported", result, json, error, "\"support\": \"unsupported\"");
    result = parbake_explain(library, "rmsnorm", "dtype=bf16", "sm_90a", &json, &error);
    says("explain", result, json, error, "\"source_key\"");
    parbake_text_free(NULL);

    json = (char *)&failed;
    result = parbake_supports(library, "rmsnrm", "dtype=f32", "host", &json, &error);
    is("unknown op", result, error, value, "PB-1107", "did you mean `rmsnorm`?");
    check(json == NULL, "unknown op", "an answer was given");
    result = parbake_supports(library, "rmsnorm", "dtype=f32", "sm_1", &json, &error);
    check(result == value, "unknown target", parbake_error_code(error));
    parbake_error_free(error);
    result = parbake_explain(library, "rmsnorm", "dtype=f64", "host", &json, &error);
    is("unknown value", result, error, value, "PB-1108", "f16, bf16, f32");
    result = parbake_explain(library, "rmsnorm", NULL, "host", &json, &error);
    is("no value", result, error, value, "PB-1108", "axis `dtype` has no value");
    result = parbake_explain(library, "rmsnorm", "dtype", "host", &json, &error);
    is("no pair", result, error, value, "PB-2150", "values: expected name=value, as in dtype=bf16, got dtype");
    result = parbake_explain(library, "rmsnorm", "dtype=f32 dtype=f16", "host", &json, &error);
    is("twice", result, error, value, "PB-2150", "one value of `dtype`");
    result = parbake_explain(library, NULL, NULL, "host", &json, &error);
    is("no op", result, error, value, "PB-2150", "op: expected a text, got a null pointer");
    result = parbake_explain(library, "rms\xff", NULL, "host", &json, &error);
    is("no text", result, error, value, "PB-2150", "op: expected UTF-8");
    result = parbake_explain(NULL, "rmsnorm", NULL, NULL, &json, &error);
    is("no library", result, error, value, "PB-2150", "library");
    result = parbake_supports(library, "rmsnorm", "dtype=f32", "host", NULL, &error);
    is("no room", result, error, value, "PB-2150", "json");
    result = parbake_prepare(library, "conv*", "dtype=f32", "host", &json, &error);
    is("no match", result, error, value, "PB-1107", "conv*");
    result = parbake_prepare(library, "rmsnorm,rmsnrm", "dtype=f32", "host", &json, &error);
    is("no match of one", result, error, value, "PB-1107", "did you mean `rmsnorm`?");
    result = parbake_prepare(library, "rmsnrm", "dtype=f32", "host", &json, &error);
    is("prepare unknown", result, error, value, "PB-1107", "rmsnorm");
    result = parbake_prepare(library, "norm/rmsnorm", "dtype=bf16", "sm_75", &json, &error);
    is("prepare unsupported", result, error, PARBAKE_ERROR_NOT_IMPLEMENTED, "PB-1109", "sm_80");
}

/* Two ranks in one process: their pools are in CPU memory. */
static void pools(void) {
    const int value = PARBAKE_ERROR_VALUE;
    parbake_pool *made[2] = {NULL, NULL}, *other = NULL;
    void *memory[2] = {NULL, NULL}, *none = NULL;
    unsigned char handles[2][PARBAKE_POOL_HANDLE];
    int64_t addresses[PARBAKE_MAX_RANKS] = {0};
    parbake_error *error;
    int result;
    for (int i = 0; i < 2; i++) {
        check(parbake_pool_new(-1, 4096, &memory[i], &made[i], NULL) == PARBAKE_OK && memory[i], "a pool", "it was not made");
        check(parbake_pool_handle(made[i], handles[i], NULL) == PARBAKE_OK, "a handle", "it was not given");
    }
    for (int rank = 0; rank < 2; rank++) {
        check(parbake_pool_open(made[rank], rank, 2, handles, addresses, NULL) == PARBAKE_OK, "pools", "they were not opened");
        for (int i = 0; i < 2; i++)
            check(addresses[i] == (int64_t)(intptr_t)memory[i], "pools", "they are elsewhere");
    }
    result = parbake_pool_open(made[0], 1, 2, handles, addresses, &error);
    is("another rank", result, error, value, "PB-2160", "that of this pool");
    result = parbake_pool_open(made[0], 0, 9, handles, addresses, &error);
    is("nine ranks", result, error, value, "PB-2150", "ranks: expected 1 to 8, got 9");
    result = parbake_pool_open(made[0], 2, 2, handles, addresses, &error);
    is("rank 2 of 2", result, error, value, "PB-2150", "rank: expected 0 to 1, got 2");
    result = parbake_pool_open(made[0], 0, 2, NULL, addresses, &error);
    is("no handles", result, error, value, "PB-2150", "handles: expected those of 2 ranks");
    handles[1][0] ^= 1;
    result = parbake_pool_open(made[0], 0, 2, handles, addresses, &error);
    is("no handle", result, error, value, "PB-2160", "that a pool of this version gave");
    result = parbake_pool_handle(NULL, handles[0], &error);
    is("a handle of nothing", result, error, value, "PB-2150", "pool: expected a pool, got a null pointer");
    result = parbake_pool_new(-1, 4096, NULL, &other, &error);
    is("a pool nowhere", result, error, value, "PB-2150", "memory: expected room");
    result = parbake_pool_new(-2, 4096, &none, &other, &error);
    is("a pool of -2", result, error, value, "PB-2150", "-1 for CPU memory, got -2");
    check(other == NULL && none == NULL, "a pool of -2", "something was given");
    parbake_pool_free(made[0]);
    parbake_pool_free(made[1]);
    parbake_pool_free(NULL);
}

int main(void) {
    parbake_library *library = NULL;
    parbake_error *error = NULL;
    check(parbake_abi() == PARBAKE_ABI, "abi", "header and library differ");
    check(strcmp(parbake_version(), PARBAKE_VERSION) == 0, "version", parbake_version());
    check(parbake_error_kind(NULL) == PARBAKE_OK && *parbake_error_code(NULL) == 0, "no error", "it has a code");
    check(*parbake_error_message(NULL) == 0, "no error", "it has a message");
    parbake_error_free(NULL);
    if (parbake_default(&library, &error) != PARBAKE_OK) {
        printf("%s\n", parbake_error_message(error));
        return 1;
    }
    check(parbake_set_log_level(2) == PARBAKE_ERROR_VALUE, "log level 2", "it was taken");
    check(parbake_set_log_level(-1) == PARBAKE_ERROR_VALUE, "log level -1", "it was taken");
    check(parbake_set_log_level(0) == PARBAKE_OK, "log level 0", "it was not taken");
    check(parbake_use_bundles("") == 1 && parbake_use_bundles(NULL) == 1, "use_bundles", "it is too late");
    check(parbake_set_default("PARBAKE_JIT", NULL) == 1, "set_default", "it is too late");
    arguments(library);
    libraries(library);
    questions(library);
    pools();
    printf("%d failed\n", failed);
    return failed;
}
