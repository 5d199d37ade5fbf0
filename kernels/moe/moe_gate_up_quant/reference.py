"""Reference of moe_gate_up_quant in float64: returns out and scale with the rows of experts replaced."""

import torch

BLOCK, LARGEST = 128, 448.0


def gated(activation, gate, up, limit):
    if activation == 0:
        return torch.nn.functional.silu(gate) * up
    if activation < 3:
        return torch.nn.functional.gelu(gate, approximate=("none", "tanh")[activation - 1]) * up
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * torch.sigmoid(1.702 * gate) * (up + 1)


@torch.no_grad()
def run(out, scale, x, x_scale, w, w_scale, indptr, rows, activation=0, limit=7.0, eps=1e-10, processors=132):
    ends, inner, hidden = indptr.tolist(), out.shape[1], x.shape[1]
    new, scale = out.float(), scale.clone()
    wide = x.double() * x_scale.double().repeat_interleave(BLOCK, 1)[:, :hidden]
    for expert in range(len(ends) - 1):
        at = torch.arange(ends[expert], ends[expert + 1], device=out.device)
        at = at[(rows[at] >= 0) & (rows[at] < x.shape[0])]
        factor = w_scale[expert].double().repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[:, :hidden]
        both = wide[rows[at].long()] @ (w[expert].double() * factor).T
        groups = gated(activation, both[:, :inner], both[:, inner:], limit).unflatten(1, (-1, BLOCK))
        by = groups.abs().amax(2).clamp(min=eps) / LARGEST
        scale[at] = by.float()
        new[at] = (groups / by[..., None]).flatten(1).float()
    return new.to(out.dtype), scale
