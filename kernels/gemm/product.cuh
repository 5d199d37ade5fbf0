// The main loop: a tile of a * b^T with mma.sync, operands by way of a ring of stages in shared memory.
#pragma once
#include "gemm/copy.cuh"
#include "parbake/mma8.cuh"

namespace pb {

template <class S> struct Product {
    using A = typename S::A;
    using B = typename S::B;
    struct Operands {
        u32 a[S::kM][4], b[S::kN / 2][4];
    };
    unsigned char* const smem;
    const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int warp_row = warp / S::kWarpsN * S::kWarpRows, warp_col = warp % S::kWarpsN * S::kWarpCols;
    float sum[S::kM][S::kN][4];

    PB_FN explicit Product(unsigned char* smem) : smem(smem) {}

    // The row of the tile, and the column, of sum[m][j][2 * h + i].
    PB_FN int row(int m, int h) const { return warp_row + 16 * m + 8 * h + lane / 4; }
    PB_FN int column(int j, int i) const { return warp_col + 8 * j + lane % 4 * 2 + i; }

    // Leaves part `part` of the sums in shared memory; row i of it is row slab_row(i, part) of the tile.
    PB_FN void store(float* slab, int part) const {
#pragma unroll
        for (int m = 0; m < S::kM; m++) {
            if (m / S::kSlabM != part) continue;
            const int base = (warp_row / S::kWarpRows * S::kSlabM + m % S::kSlabM) * 16 + lane / 4;
#pragma unroll
            for (int j = 0; j < S::kN; j++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    st<8>(slab + (base + 8 * h) * S::kPitch + column(j, 0),
                          {{bits_of<u32>(sum[m][j][2 * h]), bits_of<u32>(sum[m][j][2 * h + 1])}});
        }
    }
    static PB_FN int slab_row(int i, int part) {
        constexpr int kOf = S::kSlabM * 16;  // rows of a warp in a slab
        return i / kOf * S::kWarpRows + part * kOf + i % kOf;
    }

    static PB_FN void clear(float (&v)[S::kM][S::kN][4]) {
#pragma unroll
        for (int m = 0; m < S::kM; m++)
#pragma unroll
            for (int j = 0; j < S::kN; j++) v[m][j][0] = v[m][j][1] = v[m][j][2] = v[m][j][3] = 0.f;
    }
    // The operands of step `step` of a stage, 32 bytes of each row.
    PB_FN void load(Operands& o, Shared stage, int step) const {
        const Shared a = stage + S::TileA::at(warp_row + (lane & 15), lane >> 4);
#pragma unroll
        for (int m = 0; m < S::kM; m++)
            ldmatrix_x4<false>(o.a[m], S::TileA::step(a, 2 * step) + 16 * m * S::kLine);
        if constexpr (S::kAcross) {
            const Shared b = stage + S::kABytes + S::TileB::any(lane & 15, (lane >> 4) + warp_col / 8);
#pragma unroll
            for (int j = 0; j < S::kN / 2; j++)
                ldmatrix_x4<true>(o.b[j], S::TileB::step(b, 2 * j) + 16 * step * S::TileB::kBytes);
        } else {
            const Shared b = stage + S::kABytes + S::TileB::at(warp_col + (lane >> 4 << 3) + (lane & 7), lane >> 3 & 1);
#pragma unroll
            for (int j = 0; j < S::kN / 2; j++)
                ldmatrix_x4<false>(o.b[j], S::TileB::step(b, 2 * step) + 16 * j * S::kLine);
        }
    }
    template <class T> static PB_FN void multiply_16(float (&d)[S::kM][S::kN][4], const Operands& o) {
#pragma unroll
        for (int m = 0; m < S::kM; m++)
#pragma unroll
            for (int j = 0; j < S::kN; j++) mma_16816<T>(d[m][j], o.a[m], o.b[j / 2][j % 2 * 2], o.b[j / 2][j % 2 * 2 + 1]);
    }
    template <int kHalf> static PB_FN void multiply_widened(float (&d)[S::kM][S::kN][4], const Operands& o) {
        Operands wide;
#pragma unroll
        for (int e = 0; e < 4; e++) {
#pragma unroll
            for (int m = 0; m < S::kM; m++) wide.a[m][e] = widen_two<A, kHalf>(o.a[m][e]);
#pragma unroll
            for (int j = 0; j < S::kN / 2; j++) wide.b[j][e] = widen_two<B, kHalf>(o.b[j][e]);
        }
        multiply_16<f16>(d, wide);
    }
    static PB_FN void multiply(float (&d)[S::kM][S::kN][4], const Operands& o) {
        if constexpr (!S::kNarrow) {
            multiply_16<A>(d, o);
        } else if constexpr (!PB_FP8_MMA) {
            multiply_widened<0>(d, o);
            multiply_widened<1>(d, o);
        } else {
#pragma unroll
            for (int m = 0; m < S::kM; m++)
#pragma unroll
                for (int j = 0; j < S::kN; j++)
                    mma_16832<A, B>(d[m][j], o.a[m], o.b[j / 2][j % 2 * 2], o.b[j / 2][j % 2 * 2 + 1]);
        }
    }
    // sum = the product over `tiles` stages. 8-bit products are summed up by f32 instructions every 128 elements, because
    // tensor cores keep fewer bits, and scaled there: `scales.get(tile, f)` gives the factors of the thread's rows.
    template <class Scales> PB_FN void run(const Copy<S>& copy, const Scales& scales, int tiles) {
        clear(sum);
        const auto at = [&](int i) { return smem + i * S::kStageBytes; };
#pragma unroll
        for (int i = 0; i < S::kStages - 1; i++) {
            if (i < tiles) copy.stage(i, at(i));
            cp_async_commit();
        }
        Operands o[S::kAhead ? 2 : 1];
        if constexpr (S::kAhead) {
            cp_async_wait<S::kStages - 2>();
            __syncthreads();
            load(o[0], shared(at(0)), 0);
        }
        int read = 0, write = S::kStages - 1;
#pragma unroll 1
        for (int tile = 0; tile < tiles; tile++) {
            const Shared now = shared(at(read));
            read = read + 1 == S::kStages ? 0 : read + 1;
            float f[S::kM][2], part[S::kNarrow ? S::kM : 1][S::kNarrow ? S::kN : 1][4];
            if constexpr (S::kNarrow) {
                scales.get(tile, f);
                clear(part);
            }
#pragma unroll
            for (int step = 0; step < S::kSteps; step++) {
                // Whoever has come here reads the stage before no more.
                if (step == (S::kAhead ? S::kSteps - 1 : 0)) {
                    cp_async_wait<S::kStages - 2>();
                    __syncthreads();
                }
                // Of the stage after the last one these mean nothing, and nobody uses them.
                if constexpr (S::kAhead)
                    load(o[(step + 1) % 2], step == S::kSteps - 1 ? shared(at(read)) : now, (step + 1) % S::kSteps);
                else load(o[0], now, step);
                if (step == 0) {
                    if (tile + S::kStages - 1 < tiles) copy.stage(tile + S::kStages - 1, at(write));
                    cp_async_commit();
                    write = write + 1 == S::kStages ? 0 : write + 1;
                }
                const Operands& own = o[S::kAhead ? step % 2 : 0];
                if constexpr (S::kNarrow) multiply(part, own);
                else multiply(sum, own);
            }
            if constexpr (S::kNarrow) {
#pragma unroll
                for (int m = 0; m < S::kM; m++)
#pragma unroll
                    for (int j = 0; j < S::kN; j++)
#pragma unroll
                        for (int e = 0; e < 4; e++) sum[m][j][e] = fmaf(part[m][j][e], f[m][e / 2], sum[m][j][e]);
            }
        }
        cp_async_wait<0>();
        __syncthreads();
    }
};

}  // namespace pb
