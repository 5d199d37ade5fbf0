// The same by Hopper's own means. See params.h for the contract.
#pragma once
#include "moe/hopper_gated.cuh"
#include "moe/moe_gate_up_quant/params.h"
#include "moe/moe_gate_up_quant/quantise.cuh"

#if PB_DEVICE || PB_EMULATED
namespace pb {

struct GateUpQuantEnd {
    const pb_moe_gate_up_quant_params& p;

    PB_FN float bias(int, int, int) const { return 0.f; }
    PB_FN void write(float (&v)[4], int row, int column) const { write_group(p, v, row, column); }
};

template <class S> PB_FN void hopper_gate_up_quant(const pb_moe_gate_up_quant_params& p) {
    PB_DYN_SMEM(smem);
    PB_SHARED_ARRAY(HopperGatedMemory<S>, memory, 1);
    const GateUpQuantEnd end{p};
    HopperGated<S, pb_moe_gate_up_quant_params, GateUpQuantEnd>(p, smem, memory[0], end).run();
}

}  // namespace pb
#endif
