/* One token from each row, drawn in proportion to its weight, from those that the filters keep.
 *
 * Weights: probabilities as they are (they need not add up to 1; what is not positive weighs nothing), or exp(x - max)
 * of logits (0 below 2^-126). Tokens are ordered by weight, descending, and ties by index, ascending. A token is kept if
 *   top_k: fewer than k tokens come before it;
 *   top_p: the mass of those before it is less than p times the mass of the row, or, with top_k_first, of the first k
 *          tokens: the kept ones are the fewest whose mass is at least that share; p >= 1 keeps all;
 *   min_p: its weight is at least min_p times the greatest, rounded to f32.
 * The first token is always kept, also where k, p or the comparison with NaN would keep none.
 *
 * Draws: uniform numbers u in (0, 1) from word 0 of Philox4x32-10(seed; offset, row, draw), draw = 0, 1, .... The token
 * is the first, by index, with more mass up to and including it than u times the mass of all candidates. All tokens of
 * the row are candidates of draw 0. A token that is not kept leaves as candidates those that come before it (or those
 * that min_p keeps), and the next number is drawn. Masses are sums of f32 in an order that depends on vocab alone. The
 * token has weight, and is kept, whatever the rounding.
 *
 * token = 0 and valid = 0 where there is nothing to draw from: no positive weight, NaN or +inf in the row, or an index
 * outside the rows. */
#ifndef PARBAKE_SAMPLING_SAMPLE_PARAMS_H
#define PARBAKE_SAMPLING_SAMPLE_PARAMS_H
#include "parbake/abi.h"

typedef struct pb_sample_params {
    const void* x;        /* [sources, vocab] f32 */
    const void* indices;  /* [rows] the row of x of each draw, or null: its own */
    void* tokens;         /* [rows] of the type of indices */
    void* valid;          /* [rows] bool, or null */
    const void* seeds;    /* [1] or [rows] i64, or null: seed */
    const void* offsets;  /* [1] or [rows] i64, or null: offset */
    const void* top_ks;   /* [rows] i32, or null: top_k */
    const void* top_ps;   /* [rows] f32, or null: top_p */
    const void* min_ps;   /* [rows] f32, or null: min_p */
    pb_i64 seed;
    pb_i64 offset;
    pb_i64 x_stride;      /* elements between rows of x */
    pb_i64 sources;
    pb_i64 seeds_step;    /* 0 for one seed, 1 for one a row */
    pb_i64 offsets_step;
    pb_i32 vocab;
    pb_i32 top_k;
    float top_p;
    float min_p;
    pb_i32 top_k_first;   /* 1: top_p is a share of the mass of the first k tokens */
} pb_sample_params;

#endif
