// Rotary embedding, conversion to FP8, and append to a paged cache. params.h is the contract.
#pragma once
#include "rope/quantize.cuh"
#include "rope/rope_quantize_append/params.h"
