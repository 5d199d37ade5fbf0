"""Reference of fp8_quantize_per_block, in f32 as the contract says."""

import torch

_TYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def _round(v, dtype):
    """To 8 bits, saturated; NaN stays."""
    largest = torch.finfo(dtype).max
    return v.clamp(-largest, largest).to(dtype)


def _amax(x, dim):
    """NaN does not count, an infinity counts as the largest finite number."""
    return x.float().abs().nan_to_num(0.0, torch.finfo(torch.float32).max).amax(dim)


def _exponent(amax, largest):
    """The code of the smallest power of two, at least 2^-127, whose product with `largest` is not below amax."""
    powers = _power(torch.arange(255, device=amax.device))
    return torch.searchsorted(powers * largest, amax.double().contiguous())


def _power(code):
    """2^(code - 127), by its bits: the power function of a GPU is not exact."""
    return ((code.long() + 896) << 52).view(torch.float64)


def _divided(amax, largest):
    """Correctly rounded: of a number, PyTorch takes the reciprocal on a GPU."""
    return amax / torch.full_like(amax, largest)


@torch.no_grad()
def run(x, eps=1e-10, power_of_two=False, out_dtype="e4m3"):
    dtype = _TYPES[out_dtype]
    rows, hidden = x.shape
    tiles = torch.nn.functional.pad(x.float(), (0, -hidden % 128, 0, -rows % 128))
    tiles = tiles.reshape(-(-rows // 128), 128, -(-hidden // 128), 128)
    amax = _amax(tiles, (1, 3)).clamp(min=eps)
    largest = torch.finfo(dtype).max
    scale = _power(_exponent(amax, largest)).float() if power_of_two else _divided(amax, largest)
    out = _round(tiles * (1.0 / scale)[:, None, :, None], dtype)
    return out.reshape(tiles.shape[0] * 128, -1)[:rows, :hidden], scale
