#include "attention/attention.cuh"
PB_KERNEL(attention_bf16_d64, pb_attention_params, 128) {
    pb::attention<pb::bf16, 64, 64, 4, false>(p);
}
PB_KERNEL(attention_f16_d128_causal, pb_attention_params, 128) {
    pb::attention<pb::f16, 128, 64, 4, true>(p);
}
