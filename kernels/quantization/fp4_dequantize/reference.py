"""Reference of fp4_dequantize, in f32 as the contract says."""

import torch


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

_TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}


def _power(code):
    """2^(code - 127), by its bits: the power function of a GPU is not exact."""
    return ((code.long() + 896) << 52).view(torch.float64)


@torch.no_grad()
def run(x, scale, global_scale=None, layout=2, format=0, dtype="f32"):
    rows, pairs = x.shape
    block = 16 if format == 0 else 32
    places, _ = _places(rows, 2 * pairs // block, layout, x.device)
    code = scale.reshape(-1)[places]
    if format == 0:
        factor = code.view(torch.float8_e4m3fn).float()
    else:
        factor = torch.where(code == 255, torch.nan, _power(code)).float()
    nibbles = torch.stack((x & 15, x >> 4), -1).reshape(rows, -1, block)
    values = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], device=x.device)
    values = torch.cat((values, -values))[nibbles.long()]
    out = values * factor[..., None]
    out = out * (1.0 if global_scale is None else global_scale.float())
    return out.reshape(rows, 2 * pairs).to(_TYPES[dtype])
