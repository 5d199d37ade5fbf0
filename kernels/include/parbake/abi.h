/* The C types of every parameter struct. Each op's params.h includes this header and nothing else, so that a C11 or
 * C++ compiler, NVRTC and a binding generator that runs without any system header see one and the same layout. */
#ifndef PARBAKE_ABI_H
#define PARBAKE_ABI_H

typedef signed char pb_i8;
typedef unsigned char pb_u8;
typedef short pb_i16;
typedef unsigned short pb_u16;
typedef int pb_i32;
typedef unsigned int pb_u32;
typedef long long pb_i64;
typedef unsigned long long pb_u64;

/* A tensor that the copy engine knows, from sm_90 on. A launcher leaves its description here (`TensorMap` of the runtime),
 * the library what the driver makes of it. */
typedef struct __attribute__((aligned(64))) pb_tensor_map {
    pb_u64 words[16];
} pb_tensor_map;

/* What a launch of a collective knows of the memory that ranks share. Offsets count bytes from where a pool begins; the pools
 * of all ranks are laid out alike. */
typedef struct pb_group {
    void* pool;        /* this rank's */
    const void* pools; /* i64 [ranks]: the addresses of all pools as this rank sees them; its own entry is not read */
    pb_i64 calls;      /* u32 [blocks]: calls so far of each block of this rank */
    pb_i64 data;       /* two halves, which calls take in turn */
    pb_i64 half;       /* bytes of a half */
    pb_i64 region;     /* bytes of a half that one block of each rank uses */
    pb_u64 patience;   /* nanoseconds after which a rank that does not come is given up; 0: never */
    pb_u32 tag;        /* the same in all ranks that call the same */
    pb_i32 rank;
    pb_i32 ranks;
} pb_group;

/* The offset of field f in struct T as a constant expression: usable in static_assert and _Static_assert. */
#if defined(__CUDACC_RTC__)
#define PB_OFFSETOF(T, f) ((pb_u64)__INTADDR__(&(((T*)0)->f)))
#else
#define PB_OFFSETOF(T, f) ((pb_u64) __builtin_offsetof(T, f))
#endif

#endif
