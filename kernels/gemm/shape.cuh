// How a block is arranged for a tile of a product. `Tile` in gemm.rs has the same numbers.
#pragma once
#include "parbake/fp8.cuh"
#include "parbake/tile.cuh"

namespace pb {

// In the order of the tactic `load`.
enum Load {
    kByK,      // 16 bytes at once, elements along k lie side by side in both operands
    kByN,      // the same, but those of b along n
    kOneByOne  // element by element, any strides
};

// A tile of kRows x kCols of the product is computed by kWarpsM x kWarpsN warps. A stage has kDepth elements of k, which
// are kLine bytes of each row; kStages of them are under way or in use. Tiles of 128 bytes are for operands that come from
// far away, those of 64 for what stays in the second cache. Tile 256 + n is one of n x 256.
template <class A_, class B_, int kTile, int kLoad_> struct GemmShape {
    using A = A_;
    using B = B_;
    static constexpr int kLoad = kLoad_;
    static constexpr bool kNarrow = sizeof(A) == 1;
    static constexpr int kRows = kTile > 256 ? kTile - 256 : kTile > 64 ? 128 : kTile;
    static constexpr int kCols = kTile == 16 ? 64 : kTile >= 256 ? 256 : 128;
    static constexpr int kWarpsM = kRows == 16 ? 1 : 2;
    static constexpr int kWarpsN = kTile == 64 || (kTile == 128 && !kNarrow) ? 2 : 4, kThreads = 32 * kWarpsM * kWarpsN;
    static constexpr int kWarpRows = kRows / kWarpsM, kWarpCols = kCols / kWarpsN;
    static constexpr int kM = kWarpRows / 16, kN = kWarpCols / 8;  // products of 16 x 8 of a warp
    static constexpr int kLine = kTile > 64 && !kNarrow ? 64 : 128, kStages = kTile > 256 ? 2 : kTile == 16 || kLine == 64 ? 4 : 3;
    static constexpr int kDepth = kLine / (int)sizeof(A), kSteps = kLine / 32, kLanes = 16 / (int)sizeof(A);
    // Blocks of a multiprocessor: what registers have room for.
    static constexpr int kBlocks = kTile == 16 ? 4 : kTile == 64 || kTile == 256 + 16 || (kTile == 128 && !kNarrow) ? 2 : 1;

    // Whether operands are loaded a step ahead. Where 8 bits are widened by hand registers do not suffice for that.
    static constexpr bool kAhead = !kNarrow || kTile == 16 || PB_FP8_CVT;

    using TileA = TileOf<kLine>;
    static constexpr bool kAcross = kLoad == kByN;  // whether rows of b in shared memory are along n
    using TileB = TileOf<kAcross ? kCols * (int)sizeof(B) : kLine>;
    static constexpr int kABytes = kRows * kLine, kBBytes = kCols * kLine, kStageBytes = kABytes + kBBytes;

    // Whether the second half of the columns are those of a second matrix; of two halves of b's passes then.
    static constexpr bool kTwo = false;

    // Threads that share a row, rows of a pass, passes.
    static constexpr int kPerRow = kLine / 16, kPassRows = kThreads / kPerRow;
    static constexpr int kAPasses = kRows / kPassRows;
    static constexpr int kBPerRow = TileB::kChunks, kBPassRows = kThreads / kBPerRow;
    static constexpr int kBPasses = (kAcross ? kDepth : kCols) / kBPassRows;
    static_assert(!kAcross || kN == 2 || kWarpCols % 64 == 0, "chunks of a warp begin at a multiple of what differs");
    static_assert(kAPasses * kPassRows == kRows && kPassRows % 8 == 0 && kBPassRows % 8 == 0, "whole passes");

    // Results pass through shared memory in slabs, f32; the distance of rows makes writes meet no bank twice.
    static constexpr int kShared = kStages * kStageBytes, kPitch = kCols + 8;
    static constexpr int kSlabs = kRows * kPitch * 4 <= kShared ? 1 : 2, kSlabM = kM / kSlabs, kSlabRows = kRows / kSlabs;
    static_assert(kSlabRows * kPitch * 4 <= kShared && kM % kSlabs == 0, "fits");
};

}  // namespace pb
