// Results of items that were cut: each piece leaves its rows in memory, the last one to come merges them all in the
// order of the keys, so that the sum does not depend on who was last.
#pragma once
#include "attention/work.cuh"
#include "parbake/atomic.cuh"
#include "parbake/warp.cuh"

namespace pb {

// One item for one head of keys, or a piece of it.
struct Piece {
    int request, tile, head;          // of queries; of keys
    int first_token, qo_len, kv_len;  // of the request
    i64 first_page;
    int first, end;           // tiles of keys
    int count;                // pieces of the item
    i64 slot;                 // where this one leaves its rows
    i64 ticket;               // word of the plan
    i64 begin;                // slots of the pieces: begin + i * step, the first one begin + extra
    int step, extra;
};

// Where one thread is in what its block has to do. It lies in shared memory because registers are scarce.
struct Walk {
    i64 per, tickets;
    int blocks, split, item, head, offset, end_item, end_head, end_offset;

    PB_FN void begin(const i32* plan) {
        using L = PlanLayout;
        const words<16> a = ld<16>(plan), b = ld<16>(plan + 4), c = ld<16>(plan + 8);
        per = wide(a.w[2], a.w[3]);
        blocks = (int)b.w[3];
        split = (int)c.w[0];
        tickets = L::tickets(blocks, (int)c.w[1]);
        item = end_item = head = end_head = offset = end_offset = 0;
        if ((int)blockIdx.x < blocks) {
            const i32* start = plan + L::kHeader + (i64)L::kStart * blockIdx.x;
            const words<16> from = ld<16>(start), to = ld<16>(start + L::kStart);
            item = (int)from.w[0], head = (int)from.w[1], offset = (int)from.w[2];
            end_item = (int)to.w[0], end_head = (int)to.w[1], end_offset = (int)to.w[2];
        }
    }
    // The next piece; false: nothing is left. P has plan, kv_heads and slots.
    template <class P> PB_FN bool next(const P& p, Piece& piece) {
        using L = PlanLayout;
        const i32* const plan = (const i32*)p.plan;
#pragma unroll 1
        while (item < end_item || (item == end_item && (head < end_head || (head == end_head && offset < end_offset)))) {
            const i32* at = plan + L::items(blocks) + (i64)L::kItem * item;
            const words<16> w = ld<16>(at), x = ld<16>(at + 4), y = ld<16>(at + 8);
            const int tiles = (int)x.w[3], cost = tiles + 1, from = offset;
            const bool last = item == end_item && head == end_head;
            bool whole = false;  // no room for the pieces: whoever has the first one does it all
            int to = last ? min_i(end_offset, tiles) : tiles;
            piece.request = (int)x.w[0], piece.tile = (int)x.w[1], piece.head = head;
            piece.first_token = (int)y.w[0], piece.qo_len = (int)y.w[1], piece.kv_len = (int)y.w[2];
            piece.first_page = (i32)y.w[3];
            if (split > 0) {
                piece.count = tiles > 0 ? (tiles + split - 1) / split : 1;
                piece.begin = wide(w.w[2], w.w[3]) + (i64)head * piece.count;
                piece.step = 1, piece.extra = 0;
                piece.slot = piece.begin + from / split;
                piece.ticket = tickets + (i64)item * p.kv_heads + head;
                whole = piece.begin + piece.count > p.slots;
                if (whole) piece.count = 1, to = from == 0 ? tiles : from;
                else to = min_i(to, from + split);
            } else {
                // Where the item begins in the total, and which blocks have a part of it.
                const i64 begin = wide(w.w[0], w.w[1]) - (i64)(p.kv_heads - head) * cost;
                const i64 first = begin / per, final = (begin + (tiles > 0 ? tiles : 1) - 1) / per;
                piece.count = (int)(final - first) + 1;
                piece.begin = 2 * first;
                piece.step = 2, piece.extra = 1;
                piece.slot = 2 * (i64)blockIdx.x + (from == 0);
                piece.ticket = tickets + first;
            }
            piece.first = (int)x.w[2] + from;
            piece.end = (int)x.w[2] + to;
            if (last && split == 0) {
                offset = end_offset;
            } else if (to < tiles && !whole) {
                offset = to;
            } else {
                offset = 0;
                if (++head == p.kv_heads) head = 0, item++;
            }
            if (to > from || tiles == 0) return true;
        }
        return false;
    }
};

}  // namespace pb
