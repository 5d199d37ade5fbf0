"""Reference of packbits."""

import torch


def _pack(bits, little):
    """Bits of a byte along the last dimension, of eight."""
    weights = 2 ** torch.arange(8, device=bits.device)
    return ((bits != 0) * (weights if little else weights.flip(0))).sum(-1).to(torch.uint8)


@torch.no_grad()
def run(x, little=False):
    return _pack(torch.nn.functional.pad(x.to(torch.uint8), (0, -len(x) % 8)).reshape(-1, 8), little)
