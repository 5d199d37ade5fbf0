"""Reference of fp4_quantize, in f32 as the contract says."""

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


def _codes(v):
    """e2m1: to nearest, a tie to the even code; NaN is +6."""
    values = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=torch.float64, device=v.device)
    middle = (values[1:] + values[:-1]) / 2
    a = v.double().abs().contiguous()
    # A tie goes up where the code above is even.
    above, reached = torch.searchsorted(middle, a), torch.searchsorted(middle, a, right=True)
    code = torch.where(above % 2 == 0, above, reached)
    return torch.where(v.isnan(), 7, code + 8 * v.signbit())


@torch.no_grad()
def run(x, global_scale=None, layout=2, format=0, scale_rows=None, scale_columns=None):
    rows, hidden = x.shape
    blocks = x.float().reshape(rows, -1, 16 if format == 0 else 32)
    amax = _amax(blocks, -1)
    if format == 0:
        # An f32 on the tensor's device: a Python number would be a double.
        one = torch.ones(1, dtype=torch.float32, device=x.device)
        global_scale, sixth = one if global_scale is None else global_scale.float(), one / 6
        scale = _round(amax * sixth * global_scale, torch.float8_e4m3fn)
        code = scale.view(torch.uint8)
        factor = torch.where(code == 0, 0.0, 1.0 / (scale.float() * (1.0 / global_scale)))
    else:
        code = _exponent(amax, 6.0)
        factor = (1.0 / _power(code)).float()
    nibbles = _codes(blocks * factor[..., None]).reshape(rows, hidden // 2, 2).to(torch.uint8)
    return nibbles[..., 0] | nibbles[..., 1] << 4, _store(code.to(torch.uint8), layout)
