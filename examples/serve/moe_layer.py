#!/usr/bin/env python3
"""Runs a layer of experts as Qwen3-30B-A3B has it: norm, router, the best 8 of 128 experts, their weighted sum.

    python3 examples/serve/moe_layer.py                    the model's shapes on the GPU, in a CUDA graph
    python3 examples/serve/moe_layer.py --device cpu       small ones on the host target

Weights are random. Every kernel is Parbake's. The graph is captured once and replayed with other tokens, which go to other
experts. The same layer in plain PyTorch, expert by expert and in float64, says how far the results are off.
"""

import argparse
import dataclasses
import time

import torch

import parbake


@dataclasses.dataclass
class Layer:
    """Sizes and weights."""

    hidden: int
    inner: int
    experts: int
    k: int
    device: str
    dtype: torch.dtype = torch.bfloat16
    eps: float = 1e-6

    def __post_init__(self):
        random = torch.Generator(self.device).manual_seed(8)

        def weight(*shape):
            out = torch.empty(shape, dtype=self.dtype, device=self.device)
            # Matrix by matrix: all of them in f32 would be twice as large.
            for part in out.view(-1, *shape[-2:]):
                values = torch.randn(shape[-2:], generator=random, device=self.device)
                part.copy_(values * shape[-1] ** -0.5)
            return out

        self.target = {"target": "host"} if self.device == "cpu" else {}
        self.norm = torch.ones(self.hidden, dtype=self.dtype, device=self.device)
        # Logits that are far enough apart for 16 bits: the router's choice is seldom a close call.
        self.router = weight(self.experts, self.hidden) * 4
        self.gate_up, self.down = weight(self.experts, 2 * self.inner, self.hidden), weight(self.experts, self.hidden, self.inner)

    def run(self, x, residual):
        """Changes both: x becomes the layer's output, residual the sum before it. Gives x and the experts of each token."""
        parbake.fused_add_rmsnorm(x, residual, self.norm, self.eps, **self.target)
        logits = parbake.mm(x, self.router, out_dtype=torch.float32, **self.target)
        weights, ids = parbake.fused_moe.topk_routing(logits, self.k, **self.target)
        return parbake.fused_moe.fused_experts(x, ids, weights, self.gate_up, self.down, **self.target), ids

    def reference(self, x, residual):
        """Outputs in float64 of what the norm rounds to the type of weights, and the experts of each token."""
        x = x.double() + residual.double()
        x = (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.norm.double()).to(self.dtype).double()
        best = (x @ self.router.double().T).topk(self.k)
        weights = best.values.softmax(-1)
        out = torch.zeros_like(x)
        for expert in range(self.experts):
            token, slot = (best.indices == expert).nonzero(as_tuple=True)
            gate, up = (x[token] @ self.gate_up[expert].double().T).chunk(2, -1)
            y = (torch.nn.functional.silu(gate) * up) @ self.down[expert].double().T
            out.index_add_(0, token, y * weights[token, slot, None])
        return out, best.indices


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    words.add_argument("--tokens", type=int, default=None)
    given = words.parse_args()
    if given.device == "cpu":
        torch.set_num_threads(2)
        layer, tokens, batches = Layer(64, 48, 16, 4, "cpu"), given.tokens or 9, 3
    else:
        layer, tokens, batches = Layer(2048, 768, 128, 8, "cuda"), given.tokens or 64, 20
    random = torch.Generator().manual_seed(2)
    x, residual = (torch.empty(tokens, layer.hidden, dtype=layer.dtype, device=layer.device) for _ in range(2))
    run = lambda: layer.run(x, residual)  # noqa: E731
    differ, error, seconds = 0, 0.0, 0.0
    with torch.inference_mode():
        for batch in range(batches):
            for part in (x, residual):
                part.copy_(torch.randn(tokens, layer.hidden, generator=random))
            want, experts = layer.reference(x, residual)
            if batch == 0:
                run()  # compiles what no bundle has
                if layer.device == "cuda":
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph):
                        results = run()
                    run = lambda: (graph.replay(), results)[1]  # noqa: E731
                continue
            began = time.perf_counter()
            out, ids = run()
            out = out.double()
            seconds += time.perf_counter() - began
            # Where two experts are equally good, rounded, either choice is right.
            same = ids.long().sort(-1).values.eq(experts.sort(-1).values).all(-1)
            differ += int((~same).sum())
            off = (out - want)[same].norm(dim=-1) / want[same].norm(dim=-1)
            error = max(error, off.max().item())
    count = tokens * (batches - 1)
    print(f"{layer.experts} experts of {layer.hidden} x {layer.inner}, {layer.k} of a token, {tokens} tokens, on {layer.device}")
    print(f"{seconds * 1e6 * tokens / count:.0f} us a call; {count - differ} of {count} tokens go where float64 sends them")
    print(f"outputs are off by {error:.4f} of their norm at most")
    return 1 if differ > count // 100 or not error < 0.02 else 0


if __name__ == "__main__":
    raise SystemExit(main())
