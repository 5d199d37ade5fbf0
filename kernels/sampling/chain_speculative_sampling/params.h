/* Verifies a chain of draft tokens of each request, and draws the token after it.
 *
 * Draft token i is acceptable if u * draft < target, both the token's probabilities at position i, and u uniform in
 * (0, 1): word 0 of Philox4x32-10(seed; offset, request, i). `first` is the first position that is not acceptable, or
 * the length of the chain. Its token is drawn from the positive part of target - draft there, and after the whole chain
 * from target; where target - draft is positive nowhere, from target too. That draw is number `drafts`, and like one of
 * `sample` without filters: the first token, by index, with more mass up to and including it than u times all mass.
 *
 * tokens: the draft tokens before `first`, the drawn one, then -1. accepted is increased by the number of acceptable
 * tokens, also of those behind `first`; emitted by `first`. A draft token outside the vocabulary, or with NaN, is not
 * acceptable; the drawn token is 0 where there is no mass to draw from, or NaN or +inf. */
#ifndef PARBAKE_SAMPLING_CHAIN_SPECULATIVE_SAMPLING_PARAMS_H
#define PARBAKE_SAMPLING_CHAIN_SPECULATIVE_SAMPLING_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_chain_speculative_sampling_params {
    const void* draft_probs;     /* [rows, drafts, vocab] f32 */
    const void* draft_token_ids; /* [rows, drafts] i32 */
    const void* target_probs;    /* [rows, drafts + 1, vocab] f32 */
    const void* seeds;           /* [1] or [rows] i64, or null: seed */
    const void* offsets;         /* [1] or [rows] i64, or null: offset */
    void* tokens;                /* [rows, drafts + 1] i32 */
    void* accepted;              /* [rows] i32, increased */
    void* emitted;               /* [rows] i32, increased */
    pb_i64 seed;
    pb_i64 offset;
    pb_i64 draft_row;            /* strides in elements: between requests, between positions */
    pb_i64 draft_position;
    pb_i64 target_row;
    pb_i64 target_position;
    pb_i64 ids_row;
    pb_i64 tokens_row;
    pb_i64 seeds_step;           /* 0 for one seed, 1 for one a request */
    pb_i64 offsets_step;
    pb_i32 drafts;
    pb_i32 vocab;
} pb_chain_speculative_sampling_params;

#endif
