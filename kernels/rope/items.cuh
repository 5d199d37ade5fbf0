// How the threads of a grid are laid over tokens. A token has `items` threads. A block takes `block_tokens` tokens side
// by side, with `block_items` threads each; where a token has more threads than a block, `chunks` blocks share it.
#pragma once
#include "parbake/math.cuh"

namespace pb {

struct Item {
    u32 first;  // token of the block
    u32 token;  // of the thread, less `first`
    u32 item;   // of those of the token
    bool there;

    template <class P> static PB_FN Item of(const P& p) {
        const u32 token = quotient(threadIdx.x, p.item_magic, p.item_shift);
        u32 block = blockIdx.x, item = threadIdx.x - token * p.block_items;
        if (p.chunks > 1) {
            item += block % p.chunks * p.block_items;
            block /= p.chunks;
        }
        const u32 first = block * p.block_tokens;
        return {first, token, item, token < p.block_tokens && item < p.items && first + token < p.tokens};
    }
};

}  // namespace pb
