// Operands on their way from global to shared memory.
#pragma once
#include "gemm/shape.cuh"

namespace pb {

// What a thread copies of each stage. Rows and elements that do not exist become zeros and are not read: what stands
// there may be NaN.
template <class S> struct Copy {
    const u8 *a[S::kAPasses], *b;  // where the first stage's elements of the thread's rows are; of b the first row
    u32 a_there, b_there;          // which rows exist, a bit for each
    i64 a_k, b_k, b_step;          // bytes between elements along k, and from row to row of b
    i64 b_other;                   // kTwo: from behind the first half of b's rows to the second
    int k, row_k, end;             // the thread's first element along k, of a and of b; the end
    int a_at, b_at;                // in a stage

    static PB_FN int lane(int thread) { return thread % S::kPerRow; }
    static PB_FN int row(int thread) { return thread / S::kPerRow; }

    // Elements first .. end along k. `row_of(r)` is where row r of the tile of a begins, null if there is none.
    template <class RowOf>
    PB_FN void begin(int thread, RowOf row_of, i64 a_k, const u8* b_from, i64 b_n, i64 b_k, int cols, int first, int end) {
        this->a_k = a_k, this->b_k = b_k, this->end = end;
        k = row_k = first + lane(thread) * S::kLanes;
        a_there = b_there = 0;
        a_at = S::TileA::any(row(thread), lane(thread));
#pragma unroll
        for (int i = 0; i < S::kAPasses; i++) {
            const u8* from = row_of(row(thread) + i * S::kPassRows);
            a_there |= (from ? 1u : 0u) << i;
            a[i] = (from ? from : b_from) + k * a_k;
        }
        if constexpr (S::kAcross) {
            const int r = thread / S::kBPerRow, chunk = thread % S::kBPerRow;
            row_k = first + r;
            b_at = S::TileB::any(r, chunk);
            b_there = chunk * S::kLanes < cols;
            b = b_from + row_k * b_k + chunk * 16;
            b_step = S::kBPassRows * b_k;
        } else {
            b_at = a_at;
            b = b_from + row(thread) * b_n + k * b_k;
            b_step = S::kBPassRows * b_n;
#pragma unroll
            for (int i = 0; i < S::kBPasses; i++)
                b_there |= (row(thread) + i * S::kBPassRows < cols ? 1u : 0u) << i;
        }
    }
    // kTwo, after begin(): the second half of the rows are as many others, which lie `far` bytes behind the first ones.
    PB_FN void halves(i64 far) {
        constexpr int kHalf = S::kBPasses / 2;
        static_assert(S::kTwo && S::kLoad == kByK && S::kBPasses % 2 == 0, "a pass has rows of one half");
        b_there &= (1u << kHalf) - 1;
        b_there |= b_there << kHalf;
        b_other = far - kHalf * b_step;
    }
    // Begins the copies of stage `tile`, counted from the first.
    PB_FN void stage(int tile, unsigned char* to) const {
        const int ahead = tile * S::kDepth;
        const u32 inside = k + ahead < end;
        const i64 bytes = (i64)tile * S::kLine;
        const u8* from = b + (S::kLoad == kByK ? bytes : ahead * b_k);
#pragma unroll
        for (int i = 0; i < S::kAPasses; i++) {
            const int at = a_at + i * S::kPassRows * S::kLine;
            if constexpr (S::kLoad == kOneByOne)
                one_by_one<sizeof(typename S::A)>(a[i] + ahead * a_k, a_k, a_there >> i & 1, ahead, to + at);
            else cp_async16(shared(to) + at, a[i] + bytes, inside & a_there >> i);
        }
        // One by one is slow in any case; rolled up it leaves registers to where 8 bits are widened by hand.
#pragma unroll(S::kLoad == kOneByOne ? 1 : S::kBPasses)
        for (int i = 0; i < S::kBPasses; i++) {
            const int at = S::kABytes + b_at + i * S::kBPassRows * S::TileB::kBytes;
            if constexpr (S::kLoad == kOneByOne)
                one_by_one<sizeof(typename S::B)>(from, b_k, b_there >> i & 1, ahead, to + at);
            else if constexpr (S::kAcross)
                cp_async16(shared(to) + at, from, b_there && row_k + ahead + i * S::kBPassRows < end);
            else cp_async16(shared(to) + at, from, inside & b_there >> i);
            from += b_step;
            if constexpr (S::kTwo)
                if (i + 1 == S::kBPasses / 2) from += b_other;
        }
    }
    template <int kBytes> PB_FN void one_by_one(const u8* from, i64 step, bool there, int ahead, unsigned char* to) const {
#pragma unroll 1
        for (int j = 0; j < S::kLanes; j++) {
            words<kBytes> v = {};
            if (there && k + ahead + j < end) v = ld_nc<kBytes>(from + j * step);
            st<kBytes>(to + j * kBytes, v);
        }
    }
};

}  // namespace pb
