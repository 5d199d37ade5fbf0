"""RMS norm with a gate, a program for each row. See params.h for the contract."""

import triton
import triton.language as tl


@triton.jit
def silu(gate):
    return gate / (1.0 + tl.exp(-gate))


@triton.jit
def gated_rmsnorm(
    x,
    gate,
    weight,
    out,
    x_stride,
    gate_stride,
    out_stride,
    hidden,
    eps,
    BLOCK: tl.constexpr,
    GATE_FIRST: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    x += row * x_stride
    gate += row * gate_stride
    out += row * out_stride
    columns = tl.arange(0, BLOCK)
    # A row that is longer than the block is read twice: the second time it is near.
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, hidden, BLOCK):
        c = start + columns
        inside = c < hidden
        xs = tl.load(x + c, mask=inside, other=0.0).to(tl.float32)
        if GATE_FIRST:
            gates = tl.load(gate + c, mask=inside, other=0.0).to(tl.float32)
            xs *= silu(gates)
        squares += xs * xs
    scale = 1.0 / tl.sqrt_rn(tl.sum(squares, 0) / hidden + eps)
    for start in range(0, hidden, BLOCK):
        c = start + columns
        inside = c < hidden
        xs = tl.load(x + c, mask=inside, other=0.0).to(tl.float32)
        gates = tl.load(gate + c, mask=inside, other=0.0).to(tl.float32)
        weights = tl.load(weight + c, mask=inside, other=0.0).to(tl.float32)
        value = xs * silu(gates) * scale * weights
        tl.store(out + c, value.to(out.dtype.element_ty), mask=inside)
