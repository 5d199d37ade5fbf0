/* probs = softmax(logits / temperature), row by row. Strides count elements.
 *
 * Entries of -inf have probability 0; a row of nothing else is all 0, so that nothing can be drawn from it. A row with
 * NaN, or with +inf and a positive temperature, is all NaN, and so is one whose temperature is NaN. A temperature of 0
 * or below, or so small that its reciprocal is infinite, puts 1 on the first greatest entry and 0 elsewhere. Above 1e38
 * it is 1e38. Outputs below 2^-126 may be 0. */
#ifndef PARBAKE_SAMPLING_SOFTMAX_PARAMS_H
#define PARBAKE_SAMPLING_SOFTMAX_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_softmax_params {
    const void* logits;       /* [rows, vocab] */
    const void* temperatures; /* [rows] f32, or null: temperature */
    void* probs;              /* [rows, vocab] f32 */
    pb_i64 logits_stride;     /* at least vocab */
    pb_i64 probs_stride;      /* at least vocab */
    pb_i32 vocab;
    float temperature;
} pb_softmax_params;

#endif
