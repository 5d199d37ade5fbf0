"""Reference of merge_state_in_place in float64: returns what v and s hold afterwards."""

import torch


def merge(v, s):
    """States along dimension 1."""
    v, s = v.double(), s.double()
    if s.shape[1] == 0:
        return v.new_zeros(v.shape[0], *v.shape[2:]), s.new_full((s.shape[0], s.shape[2]), -torch.inf)
    top = s.amax(dim=1, keepdim=True)
    weight = torch.where(top == -torch.inf, 0.0, torch.exp2(s - top))
    # A state of weight 0 adds nothing, whatever it holds; in f32, smaller weights are 0.
    counts = ~(weight < torch.finfo(torch.float32).tiny)
    values = torch.where(counts[..., None], weight[..., None] * v, 0.0).sum(dim=1)
    total = weight.sum(dim=1)
    return values / torch.where(total == 0, 1.0, total)[..., None], top[:, 0] + total.log2()


@torch.no_grad()
def run(v, s, v_other, s_other, mask=None):
    merged, lse = merge(torch.stack([v, v_other], dim=1), torch.stack([s, s_other], dim=1))
    merged, lse = merged.to(v.dtype), lse.float()
    if mask is None:
        return merged, lse
    return torch.where(mask[:, None, None], merged, v), torch.where(mask[:, None], lse, s)
