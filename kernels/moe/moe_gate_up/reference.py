"""Reference of moe_gate_up in float64: returns out with the rows of experts replaced."""

import torch


def gated(activation, gate, up, limit):
    if activation == 0:
        return torch.nn.functional.silu(gate) * up
    if activation < 3:
        return torch.nn.functional.gelu(gate, approximate=("none", "tanh")[activation - 1]) * up
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * torch.sigmoid(1.702 * gate) * (up + 1)


@torch.no_grad()
def run(out, x, w, indptr, rows, bias=None, activation=0, limit=7.0, processors=132):
    out, ends = out.clone(), indptr.tolist()
    inner = out.shape[1]
    for expert in range(len(ends) - 1):
        at = torch.arange(ends[expert], ends[expert + 1], device=out.device)
        at = at[(rows[at] >= 0) & (rows[at] < x.shape[0])]
        both = x[rows[at].long()].double() @ w[expert].double().T
        if bias is not None:
            both = both + bias[expert].double()
        out[at] = gated(activation, both[:, :inner], both[:, inner:], limit).to(out.dtype)
    return out
