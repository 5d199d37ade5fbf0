"""Reference of segment_packbits."""

import torch


def _pack(bits, little):
    """Bits of a byte along the last dimension, of eight."""
    weights = 2 ** torch.arange(8, device=bits.device)
    return ((bits != 0) * (weights if little else weights.flip(0))).sum(-1).to(torch.uint8)


@torch.no_grad()
def run(x, indptr, out_indptr, little=False, packed=None):
    out = torch.zeros(int(out_indptr[-1]) if packed is None else packed, dtype=torch.uint8, device=x.device)
    for begin, end, to in zip(indptr[:-1].tolist(), indptr[1:].tolist(), out_indptr.tolist()):
        bits = torch.nn.functional.pad(x[begin:end].to(torch.uint8), (0, -(end - begin) % 8)).reshape(-1, 8)
        out[to : to + len(bits)] = _pack(bits, little)
    return out
