// Rotary embedding of rows in shared memory: pairs of columns (i, i + half the size) turn by position * frequency(i).
#pragma once
#include "parbake/vec.cuh"
#include "rope/rotate.cuh"

namespace pb {

// The frequency of pair i: the product of two numbers of the tables, each an f32 and what that leaves.
template <class P> PB_FN float frequency(const P& p, int i) {
    const float *a = p.coarse + 2 * (i / 16), *b = p.fine + 2 * (i % 16);
    return fmaf(a[0], b[0], fmaf(a[0], b[1], a[1] * b[0]));
}

// Columns 8 * unit .. 8 * unit + 8 of the first half of a row, and theirs of the second half, `half` chunks further.
template <class T, class Tile, class P>
PB_FN void turn(const P& p, unsigned char* tile, int row, int unit, int half, int position) {
    unsigned char *const a = tile + Tile::any(row, unit), *const b = tile + Tile::any(row, unit + half);
    float x[8], y[8], angle[8], sine[8], cosine[8];
    unpack<T, 16>(ld<16>(a), x);
    unpack<T, 16>(ld<16>(b), y);
#pragma unroll
    for (int j = 0; j < 8; j++) angle[j] = mul_rn((float)position, frequency(p, 8 * unit + j));
    sin_cos(angle, sine, cosine);
#pragma unroll
    for (int j = 0; j < 8; j++) turn(x[j], y[j], sine[j], cosine[j]);
    st<16>(a, pack<T, 16>(x));
    st<16>(b, pack<T, 16>(y));
}

}  // namespace pb
