// Shares the work of batch_attention out among blocks. params.h is the contract, work.cuh the layout.
#pragma once
#include "attention/attention_plan/params.h"
#include "attention/work.cuh"
#include "parbake/scan.cuh"

namespace pb {

template <int kBlock> PB_FN void attention_plan(const pb_attention_plan_params& p) {
    using L = PlanLayout;
    PB_SHARED_ARRAY(i64, counts_of_warps, 32);
    PB_SHARED_ARRAY(i64, costs_of_warps, 32);
    PB_SHARED_ARRAY(i64, pieces_of_warps, 32);
    PB_SHARED_ARRAY(int, item_end, kBlock);  // items of the requests of this round up to and with each
    PB_SHARED_ARRAY(Span, spans, kBlock);
    PB_SHARED_ARRAY(i32, tokens, kBlock);  // the first of each
    PB_SHARED_ARRAY(i32, pages_of, kBlock);
    const int t = (int)threadIdx.x;
    i32* plan = (i32*)p.plan;
    i32* items = plan + L::items(p.blocks);
    i64 first_item = 0, cost = 0, pieces = 0;
#pragma unroll 1
    for (i64 first = 0; first < p.batch; first += kBlock) {
        const i64 b = first + t;
        Span span = {0, 0};
        i32 token = 0, page = 0;
        if (b < p.batch) {
            span.qo_len = p.qo_len;
            token = (i32)(b * p.qo_len);
            if (p.qo_indptr) {
                const i32* qo = (const i32*)p.qo_indptr + b;
                token = (i32)ld_nc<4>(qo).w[0];
                span.qo_len = (i32)ld_nc<4>(qo + 1).w[0] - token;
            }
            const i32* kv = (const i32*)p.kv_indptr + b;
            page = (i32)ld_nc<4>(kv).w[0];
            const i32 pages = (i32)ld_nc<4>(kv + 1).w[0] - page;
            const i32 last = p.kv_last_page_len ? (i32)ld_nc<4>((const i32*)p.kv_last_page_len + b).w[0] : p.page_size;
            span.kv_len = keys_of(pages, p.page_size, last);
        }
        const i64 rows = span.qo_len > 0 ? (i64)span.qo_len * p.group : 0;
        i64 count;
        const i64 end = block_scan((rows + p.rows - 1) / p.rows, add_op{}, (i64)0, counts_of_warps, count);
        // A plan without room for an item leaves it out; the launcher of the plan has seen to it that there is room.
        if (count > p.capacity - first_item) count = p.capacity - first_item;
        item_end[t] = (int)min_i(end, count);
        spans[t] = span;
        tokens[t] = token;
        pages_of[t] = page;
        __syncthreads();
#pragma unroll 1
        for (i64 from = 0; from < count; from += kBlock) {
            const int i = (int)from + t;
            int r = 0, tile = 0, first_key = 0, tiles = 0;
            const bool exists = i < count;
            if (exists) {
                // The first request whose items end beyond i.
#pragma unroll 1
                for (int step = kBlock / 2; step; step /= 2)
                    if (item_end[r + step - 1] <= i) r += step;
                tile = i - (r ? item_end[r - 1] : 0);
                const Span s = spans[r];
                const i64 rows_of = (i64)s.qo_len * p.group, begin = (i64)tile * p.rows;
                const i64 stop = min_i(begin + p.rows, rows_of);
                const int low = s.first((int)(begin / p.group), p.window);
                const int high = s.end((int)((stop - 1) / p.group), p.causal != 0);
                first_key = low / p.keys;
                tiles = high > low ? (high + p.keys - 1) / p.keys - first_key : 0;
            }
            const int cut = p.split > 0 && tiles > 0 ? (tiles + p.split - 1) / p.split : 1;
            i64 costs, cuts;
            const i64 no = 0, mine = exists ? (i64)(tiles + 1) * p.kv_heads : 0, my_cuts = exists ? (i64)cut * p.kv_heads : 0;
            const i64 up_to = cost + block_scan(mine, add_op{}, no, costs_of_warps, costs);
            const i64 before = pieces - my_cuts + block_scan(my_cuts, add_op{}, no, pieces_of_warps, cuts);
            if (exists) {
                i32* to = items + (first_item + i) * L::kItem;
                st<16>(to, {{(u32)up_to, (u32)((u64)up_to >> 32), (u32)before, (u32)((u64)before >> 32)}});
                st<16>(to + 4, {{(u32)(first + r), (u32)tile, (u32)first_key, (u32)tiles}});
                const Span s = spans[r];
                st<16>(to + 8, {{(u32)tokens[r], (u32)s.qo_len, (u32)s.kv_len, (u32)pages_of[r]}});
            }
            cost += costs;
            pieces += cuts;
        }
        first_item += count;
        __syncthreads();
    }
    const i64 per = cost > 0 ? (cost + p.blocks - 1) / p.blocks : 1;
    // The items are written: each thread looks for where its blocks begin.
#pragma unroll 1
    for (int block = t; block <= p.blocks; block += kBlock) {
        const i64 at = min_i(per * block, cost);
        i64 low = 0, high = first_item;  // the first item whose cost ends beyond `at`
#pragma unroll 1
        while (low < high) {
            const i64 middle = (low + high) / 2;
            const words<8> w = ld<8>(items + middle * L::kItem);
            if (wide(w.w[0], w.w[1]) <= at) low = middle + 1;
            else high = middle;
        }
        i64 item = low;
        int head = 0, offset = 0;
        if (item < first_item) {
            const words<8> w = ld<8>(items + item * L::kItem);
            const int tiles = (int)ld<4>(items + item * L::kItem + 7).w[0];
            const i64 into = at - (wide(w.w[0], w.w[1]) - (i64)(tiles + 1) * p.kv_heads);
            head = (int)(into / (tiles + 1));
            offset = (int)(into - (i64)head * (tiles + 1));
            if (p.split > 0) {
                const int piece = (offset + p.split - 1) / p.split;
                offset = piece * p.split;
                if (offset >= tiles && offset > 0) {
                    offset = 0;
                    if (++head == p.kv_heads) {
                        head = 0;
                        item++;
                    }
                }
            }
        }
        st<16>(plan + L::kHeader + (i64)L::kStart * block, {{(u32)item, (u32)head, (u32)offset, 0}});
    }
    // Items that may be cut: one begins in each block, or any of them.
    const i64 tickets = p.split > 0 ? first_item * p.kv_heads : (i64)p.blocks;
#pragma unroll 1
    for (i64 i = t; i < tickets; i += kBlock) st<4>(plan + L::tickets(p.blocks, p.capacity) + i, {{0}});
    if (t == 0) {
        st<16>(plan, {{(u32)cost, (u32)((u64)cost >> 32), (u32)per, (u32)((u64)per >> 32)}});
        st<16>(plan + 4, {{(u32)first_item, (u32)p.rows, (u32)p.keys, (u32)p.blocks}});
        st<16>(plan + 8, {{(u32)p.split, (u32)p.capacity, 0, 0}});
        st<16>(plan + 12, {{0, 0, 0, 0}});
    }
}

}  // namespace pb
