// How attention is shared out among blocks. A plan, which attention_plan makes on the device, holds 32-bit words:
//   header  16 words: kTotal and kPer (64 bits each), kItems, kRows, kKeys, kBlocks, kSplit, kCapacity
//   starts  (blocks + 1) x 4: where each block begins: item, head of keys, tile of the item, 0; the last is the end
//   items   capacity x 12: cost of all items up to and with this one (64 bits), pieces of those before it (64 bits),
//           request, tile of queries, first tile of keys, tiles of keys, and of the request: first token, tokens, keys,
//           first page
//   tickets one for each item that may be cut, 0 between launches
// An item is a tile of queries (kRows rows: token by token, for each the heads that share a head of keys) of a request;
// it is done once for each head of keys. Its cost is its tiles of keys and one for the rest. Blocks take equal shares of
// the cost, in order, and so cut items (kSplit = 0); or items are cut every kSplit tiles, wherever they are done, and a
// block takes the pieces that begin in its share.
#pragma once
#include "parbake/math.cuh"
#include "parbake/vec.cuh"

namespace pb {

struct PlanLayout {
    static constexpr int kTotal = 0, kPer = 2, kItems = 4, kRows = 5, kKeys = 6, kBlocks = 7, kSplit = 8, kCapacity = 9;
    static constexpr int kHeader = 16, kStart = 4, kItem = 12;
    static PB_FN i64 items(int blocks) { return kHeader + (i64)kStart * (blocks + 1); }
    static PB_FN i64 tickets(int blocks, int capacity) { return items(blocks) + (i64)kItem * capacity; }
};

PB_FN i64 wide(u32 lo, u32 hi) {
    return (i64)((u64)hi << 32 | lo);
}

// n / d for 0 <= n < 2^31: the launcher has made `multiply` and `shift` of d.
struct Divisor {
    u32 multiply;
    int shift;
    PB_FN int of(int n) const {
        return multiply == 0 ? n : (int)((u64)(u32)n * multiply >> 32 >> shift);
    }
};

// Which keys a request has, and which of them its queries see.
struct Span {
    int qo_len, kv_len;
    // Query i sees keys from first(i) to before end(i).
    PB_FN int end(int i, bool causal) const {
        const int end = causal ? i + 1 + kv_len - qo_len : kv_len;
        return end < 0 ? 0 : min_i(end, kv_len);
    }
    PB_FN int first(int i, int window) const {
        const int first = window < 0 ? 0 : i + kv_len - qo_len - window;
        return first < 0 ? 0 : first;
    }
};

// Pages of a request and the tokens of the last one: how many keys that are.
PB_FN int keys_of(int pages, int page_size, int last_page_len) {
    return pages <= 0 ? 0 : (pages - 1) * page_size + last_page_len;
}

}  // namespace pb
