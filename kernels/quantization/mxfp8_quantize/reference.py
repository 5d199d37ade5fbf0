"""Reference of mxfp8_quantize: a power of two for each 32 elements."""

import torch


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


def _places(rows, blocks, layout, device):
    """Where the scale of each row and block lies, and the shape of the scales."""
    m = torch.arange(rows, device=device)[:, None]
    k = torch.arange(blocks, device=device)[None]
    if layout == 2:
        return m * blocks + k, (rows, blocks)
    high = 128 if layout == 0 else 8
    shape = (-(-rows // high) * high, -(-blocks // 4) * 4)
    tile = m // high * (shape[1] // 4) + k // 4
    if layout == 0:
        return tile * 512 + m % 32 * 16 + m % 128 // 32 * 4 + k % 4, shape
    return tile * 32 + m % 8 * 4 + k % 4, shape


def _store(codes, layout):
    """Codes of all blocks in their layout, padded with zeros."""
    places, shape = _places(*codes.shape, layout, codes.device)
    scale = torch.zeros(shape, dtype=torch.uint8, device=codes.device)
    scale.view(-1)[places.reshape(-1)] = codes.reshape(-1)
    return scale


@torch.no_grad()
def run(x, layout=2, scale_rows=None, scale_columns=None):
    rows, hidden = x.shape
    blocks = x.double().reshape(rows, hidden // 32, 32)
    code = _exponent(_amax(blocks, -1), 448.0)
    out = _round(blocks / _power(code)[..., None], torch.float8_e4m3fn).reshape(rows, hidden)
    return out, _store(code.to(torch.uint8), layout)
