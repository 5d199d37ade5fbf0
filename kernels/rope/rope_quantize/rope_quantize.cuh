// Rotary embedding and conversion to FP8. params.h is the contract.
#pragma once
#include "rope/quantize.cuh"
#include "rope/rope_quantize/params.h"
