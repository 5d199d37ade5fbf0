// The same by Hopper's own means. See params.h for the contract.
#pragma once
#include "moe/hopper_gated.cuh"
#include "moe/moe_gate_up/params.h"

#if PB_DEVICE || PB_EMULATED
namespace pb {

template <class T> struct GateUpEnd {
    const pb_moe_gate_up_params& p;

    PB_FN float bias(int expert, int set, int column) const {
        if (!p.bias || column >= p.inner) return 0.f;
        const T* const from = (const T*)((const u8*)p.bias + expert * p.bias_expert) + set * p.inner + column;
        float v[1];
        unpack<T, sizeof(T)>(ld_nc<sizeof(T)>(from), v);
        return v[0];
    }
    PB_FN void write(const float (&v)[4], int row, int column) const {
        if (column < p.inner) store_four((T*)((u8*)p.out + row * p.out_row) + column, v, column, p.inner, p.wide);
    }
};

template <class S> PB_FN void hopper_gate_up(const pb_moe_gate_up_params& p) {
    using End = GateUpEnd<typename S::T>;
    PB_DYN_SMEM(smem);
    PB_SHARED_ARRAY(HopperGatedMemory<S>, memory, 1);
    const End end{p};
    HopperGated<S, pb_moe_gate_up_params, End>(p, smem, memory[0], end).run();
}

}  // namespace pb
#endif
