// Which rows a block of a grouped product computes.
#pragma once
#include "gemm/shape.cuh"
#include "parbake/math.cuh"
#include "parbake/warp.cuh"

namespace pb {

// Rows first .. first + count of the results; group: of all of them, or -1 if each row says its own.
struct GroupTile {
    int first, count, group;
};

// Whether parameters say by lengths, or row by row, which group a row is in.
template <class P, class = void> inline constexpr bool kHasLengths = false;
template <class P> inline constexpr bool kHasLengths<P, decltype((void)P::lengths)> = true;
template <class P, class = void> inline constexpr bool kHasIds = false;
template <class P> inline constexpr bool kHasIds<P, decltype((void)P::ids)> = true;

// Row `i` where group `g` begins; what lies outside the results counts as their end.
template <class P> PB_FN int group_begin(const P& p, int g) {
    const int at = (int)ld_nc<4>((const i32*)p.indptr + g).w[0];
    return at < 0 ? 0 : min_i(at, (int)p.m);
}
// Where the rows of a group begin, and how many they are. Structs without lengths always have indptr.
template <class P> PB_FN int group_rows(const P& p, int g, int& begin) {
    if constexpr (kHasLengths<P>) {
        if (!p.indptr) {
            begin = (int)min_i((i64)g * p.most, (i64)p.m);
            const int length = (int)ld_nc<4>((const i32*)p.lengths + g).w[0];
            return length < 0 ? 0 : min_i(min_i(length, (int)p.most), (int)p.m - begin);
        }
    }
    begin = group_begin(p, g);
    const int end = group_begin(p, g + 1);
    return end > begin ? end - begin : 0;
}

// Finds tiles of kRows rows, counted group by group. It goes on where it was: no tile comes before the one found last.
template <int kRows> struct GroupWalk {
    int base = 0, passed = 0;  // groups that lie behind, and their tiles

    // Notes tile `tile`. One warp, all lanes, which look at 32 groups at a time.
    template <class P> PB_FN void find(const P& p, int tile, GroupTile& found) {
        const int lane = (int)lane_id();
        __syncwarp();
        if (lane == 0) found = {0, 0, -1};
        __syncwarp();
#pragma unroll 1
        for (; base < p.groups; base += 32) {
            int begin = 0;
            const int rows = base + lane < p.groups ? group_rows(p, base + lane, begin) : 0;
            const int tiles = (rows + kRows - 1) / kRows;
            int upto = tiles;  // of this lane's group and those before it
#pragma unroll
            for (int d = 1; d < 32; d *= 2) {
                const int before = shfl_up(upto, d);
                if (lane >= d) upto += before;
            }
            const int at = tile - passed - (upto - tiles);  // counted from the group's first
            if (at >= 0 && at < tiles) found = {begin + at * kRows, min_i(rows - at * kRows, kRows), base + lane};
            const int all = shfl(upto, 31);
            if (tile < passed + all) break;
            passed += all;
        }
        __syncwarp();
    }
};

// Notes tile `tile`, counted group by group, or row by row where each row says its group.
template <int kRows, class P> PB_FN void find_tile(const P& p, int tile, GroupTile& found) {
    if constexpr (kHasIds<P>) {
        if (p.ids) {
            if (lane_id() == 0) found = {tile * kRows, min_i(kRows, (int)p.m - tile * kRows), -1};
            return;
        }
    }
    GroupWalk<kRows>().find(p, tile, found);
}

}  // namespace pb
