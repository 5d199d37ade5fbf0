"""Reference of mxfp8_dequantize."""

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
def run(x, scale, layout=2, dtype="f32"):
    rows, hidden = x.shape
    places, _ = _places(rows, hidden // 32, layout, x.device)
    code = scale.reshape(-1)[places]
    power = torch.where(code == 255, torch.nan, _power(code))
    return (x.double().reshape(rows, -1, 32) * power[..., None]).reshape(rows, hidden).to(_TYPES[dtype])
