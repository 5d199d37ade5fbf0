"""Reference of packed_indptr."""

import torch


@torch.no_grad()
def run(indptr):
    lengths = (indptr[1:] - indptr[:-1]).clamp(min=0)
    return torch.nn.functional.pad(((lengths + 7) // 8).cumsum(0), (1, 0)).to(torch.int32)
