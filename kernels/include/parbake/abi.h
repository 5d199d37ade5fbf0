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

/* The offset of field f in struct T as a constant expression: usable in static_assert and _Static_assert. */
#if defined(__CUDACC_RTC__)
#define PB_OFFSETOF(T, f) ((pb_u64)__INTADDR__(&(((T*)0)->f)))
#else
#define PB_OFFSETOF(T, f) ((pb_u64) __builtin_offsetof(T, f))
#endif

#endif
