#!/usr/bin/env python3
"""Serves a small decoder-only transformer with Parbake: paged keys and values, prefill, then decode in a CUDA graph.

    python3 examples/serve/serve.py                    an 8B model's shapes on the GPU, one layer's weights for all layers
    python3 examples/serve/serve.py --device cpu       a tiny model on the host target

Weights are random. Every kernel is Parbake's, and all of a step of decode is captured once: the plan of attention too, so a
replay needs no more than the new lengths. The same model is written in plain PyTorch below
it, and both must choose the same tokens; the smallest distance between the two best logits says what that is worth.
"""

import argparse
import dataclasses
import time

import torch

import parbake


@dataclasses.dataclass
class Model:
    """Sizes, and the weights of the one layer."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    device: str
    dtype: torch.dtype = torch.bfloat16
    eps: float = 1e-5
    theta: float = 5e5

    def __post_init__(self):
        random = torch.Generator(self.device).manual_seed(8)
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim

        def weight(outputs, inputs, gain=1.0):
            values = torch.randn(outputs, inputs, generator=random, device=self.device, dtype=torch.float32)
            return (values * (gain * inputs**-0.5)).to(self.dtype)

        self.table = weight(self.vocab, self.hidden, self.hidden**0.5)
        # Some tokens weigh more than others, as they do in a model that was trained: the best is seldom a close call.
        weights = torch.rand(self.vocab, 1, generator=random, device=self.device) ** (-1 / 6)
        self.head = (weight(self.vocab, self.hidden) * weights).to(self.dtype)
        self.qkv, self.o = weight(q + 2 * kv, self.hidden), weight(self.hidden, q)
        self.up, self.down = weight(2 * self.ffn, self.hidden), weight(self.hidden, self.ffn)
        # Norms that are not all ones, so that one in the wrong place shows.
        self.norms = [1 + 0.1 * weight(3, self.hidden)[i] * self.hidden**0.5 for i in range(3)]


class Server:
    """Runs batches of requests, whose keys lie in pages."""

    def __init__(self, model, requests, most, page_size=16):
        self.m, self.page_size, device = model, page_size, model.device
        self.target = {"target": "host"} if device == "cpu" else {}
        each = -(-most // page_size)
        shape = (requests * each, 2, page_size, model.kv_heads, model.head_dim)
        self.caches = [torch.empty(shape, dtype=model.dtype, device=device) for _ in range(model.layers)]
        # In any order, as in a server that has run for a while.
        self.pages = torch.randperm(requests * each, generator=torch.Generator().manual_seed(1)).int().view(requests, each)
        size = parbake.attention_workspace_size(model.head_dim, device, **self.target)
        self.workspace = torch.empty(size, dtype=torch.uint8, device=device)

    def batch(self, lens):
        """indptr, indices and last_page_len of requests that are so long, on the host."""
        counts = [-(-n // self.page_size) for n in lens]
        indptr = torch.tensor([0, *counts], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        indices = torch.cat([row[:n] for row, n in zip(self.pages, counts)])
        last = torch.tensor([n - (c - 1) * self.page_size for n, c in zip(lens, counts)], dtype=torch.int32)
        return indptr, indices, last

    def forward(self, ids, attention, kv, where, positions, last):
        """Logits of the rows `last` of some tokens. `where` says whose they are; `kv` where the pages are."""
        m, target = self.m, self.target
        q_width, kv_width = m.heads * m.head_dim, m.kv_heads * m.head_dim
        residual = parbake.embedding(ids, m.table, **target)
        x = parbake.rmsnorm(residual, m.norms[0], m.eps, **target)
        for layer, cache in enumerate(self.caches):
            qkv = parbake.mm(x, m.qkv, **target)
            # Views of one projection: nothing is copied for them.
            q, k, v = (part.unflatten(1, (-1, m.head_dim)) for part in qkv.split([q_width, kv_width, kv_width], 1))
            parbake.apply_rope_pos_ids_inplace(q, k, positions, rope_theta=m.theta, **target)
            parbake.append_paged_kv_cache(k, v, where, positions, cache, *kv, **target)
            x = parbake.mm(attention.run(q, cache).flatten(1), m.o, **target)
            parbake.fused_add_rmsnorm(x, residual, m.norms[1], m.eps, **target)
            x = parbake.mm(parbake.silu_and_mul(parbake.mm(x, m.up, **target), **target), m.down, **target)
            final = layer + 1 == m.layers
            parbake.fused_add_rmsnorm(x, residual, m.norms[2 if final else 0], m.eps, **target)
        if last is not None:
            x = parbake.embedding(last, x, **target)
        # f32, in which hardly any two are equal.
        return parbake.mm(x, m.head, out_dtype=torch.float32, **target)

    def choose(self, logits):
        return parbake.top_k(logits, 1, **self.target)[1].flatten()

    def prefill(self, prompts):
        """The first token after each prompt; their keys are in the cache then."""
        m, lens = self.m, [len(p) for p in prompts]
        begins = torch.tensor([0, *lens], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        indptr, indices, last = (x.to(m.device) for x in self.batch(lens))
        qo_indptr, lengths = begins.to(m.device), torch.tensor(lens, dtype=torch.int32, device=m.device)
        where, positions = parbake.get_batch_indices_positions(qo_indptr, lengths, sum(lens), **self.target)
        attention = parbake.BatchPrefillWithPagedKVCacheWrapper(self.workspace, **self.target)
        attention.plan(
            qo_indptr, indptr, indices, last, m.heads, m.kv_heads, m.head_dim, self.page_size,
            causal=True, num_tokens=sum(lens),
        )  # fmt: skip
        logits = self.forward(torch.cat(prompts), attention, (indices, indptr, last), where, positions, qo_indptr[1:] - 1)
        return self.choose(logits), logits

    def decode(self, ids, lens, steps):
        """The next `steps` tokens of each request, one step after the other, and the logits they were chosen by."""
        m, requests = self.m, len(lens)
        buffers = [x.to(m.device) for x in self.batch([self.pages.shape[1] * self.page_size] * requests)]
        indptr, indices, last = buffers
        attention = parbake.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(self.workspace, *buffers, **self.target)
        ids, begins = ids.clone(), torch.arange(requests + 1, dtype=torch.int32, device=m.device)

        def step():
            attention.plan(indptr, indices, last, m.heads, m.kv_heads, m.head_dim, self.page_size)
            lengths = parbake.get_seq_lens(indptr, last, self.page_size, **self.target)
            where, positions = parbake.get_batch_indices_positions(begins, lengths, requests, **self.target)
            logits = self.forward(ids, attention, (indices, indptr, last), where, positions, None)
            chosen = self.choose(logits)
            ids.copy_(chosen)
            return chosen, logits

        def lengthen(by):
            for buffer, now in zip(buffers, self.batch([n + by for n in lens])):
                buffer[: len(now)].copy_(now, non_blocking=True)

        lengthen(1)
        run = step if m.device == "cpu" else captured(step, ids)
        tokens, all_logits, began = [], [], time.perf_counter()
        for i in range(steps):
            lengthen(i + 1)
            chosen, logits = run()
            tokens.append(chosen.clone())
            all_logits.append(logits.clone())
        tokens = torch.stack(tokens).cpu()
        return tokens, torch.stack(all_logits), (time.perf_counter() - began) / steps


def captured(step, ids):
    """`step` as a graph that gives the same tensors each time."""
    before = ids.clone()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()  # compiles what no bundle has, and takes what products that are cut need
    torch.cuda.current_stream().wait_stream(stream)
    ids.copy_(before)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()

    def replay():
        graph.replay()
        return results

    return replay


class Reference:
    """The same model in plain PyTorch, a request at a time."""

    def __init__(self, model):
        self.m, self.keys = model, [None] * model.layers

    def norm(self, x, weight):
        x = x.float()
        return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.m.eps) * weight.float()).to(self.m.dtype)

    def turn(self, x, positions):
        half = self.m.head_dim // 2
        frequency = self.m.theta ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
        angle = (positions.float()[:, None] * frequency)[:, None]
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1).to(self.m.dtype)

    def attend(self, q, k, v):
        group, past = self.m.heads // self.m.kv_heads, k.shape[0] - q.shape[0]
        k, v = (x.repeat_interleave(group, 1).float() for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q.float(), k) * self.m.head_dim**-0.5
        rows, columns = torch.arange(q.shape[0], device=q.device), torch.arange(k.shape[0], device=q.device)
        scores = scores.masked_fill(columns > rows[:, None] + past, float("-inf"))
        return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).to(self.m.dtype)

    def logits(self, ids, past):
        m = self.m
        q_width, kv_width = m.heads * m.head_dim, m.kv_heads * m.head_dim
        residual, positions = m.table[ids], past + torch.arange(len(ids), device=m.device)
        x = self.norm(residual, m.norms[0])
        for layer in range(m.layers):
            q, k, v = (
                part.unflatten(1, (-1, m.head_dim)) for part in (x @ m.qkv.T).split([q_width, kv_width, kv_width], 1)
            )
            k, v = torch.stack((self.turn(k, positions), v))
            if past:
                k, v = torch.cat((self.keys[layer][0], k)), torch.cat((self.keys[layer][1], v))
            self.keys[layer] = k, v
            x = self.attend(self.turn(q, positions), k, v).flatten(1) @ m.o.T
            # Like the fused kernel, which takes the norm of sums that are not rounded yet.
            whole = x.float() + residual.float()
            residual, x = whole.to(m.dtype), self.norm(whole, m.norms[1])
            gate, up = (x @ m.up.T).chunk(2, -1)
            x = (torch.nn.functional.silu(gate.float()) * up.float()).to(m.dtype) @ m.down.T
            whole = x.float() + residual.float()
            residual, x = whole.to(m.dtype), self.norm(whole, m.norms[2 if layer + 1 == m.layers else 0])
        if m.device == "cpu":
            return (x[-1:].float() @ m.head.float().T)[0]
        return torch.mm(x[-1:], m.head.T, out_dtype=torch.float32)[0]


def compare(model, prompts, tokens, logits):
    """What PyTorch makes of the same tokens. Gives how many it would have chosen otherwise, the greatest error of a logit
    and the least distance between the best two.
    """
    differ, error, margin = 0, 0.0, float("inf")
    for i, prompt in enumerate(prompts):
        reference, ids, past = Reference(model), prompt, 0
        for step in range(tokens.shape[0]):
            want = reference.logits(ids, past)
            past += len(ids)
            best = want.topk(2)
            differ += int(best.indices[0]) != int(tokens[step, i])
            error = max(error, (logits[step, i] - want).abs().max().item())
            margin = min(margin, (best.values[0] - best.values[1]).item())
            ids = tokens[step, i : i + 1].to(ids.device, ids.dtype)
    return differ, error, margin


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    words.add_argument("--requests", type=int, default=4)
    words.add_argument("--tokens", type=int, default=None, help="to generate for each request")
    words.add_argument("--layers", type=int, default=None)
    given = words.parse_args()
    if given.device == "cpu":
        torch.set_num_threads(2)
        model = Model(given.layers or 2, 128, 4, 2, 64, 256, 512, "cpu")
        lens, steps = [5, 17, 33, 1], given.tokens or 4
    else:
        # Llama-3-8B, but for the weights.
        model = Model(given.layers or 32, 4096, 32, 8, 128, 14336, 128256, "cuda")
        lens, steps = [512, 37, 1000, 129], given.tokens or 32
    lens = (lens * given.requests)[: given.requests]
    random = torch.Generator().manual_seed(2)
    prompts = [torch.randint(model.vocab, (n,), generator=random).to(model.device) for n in lens]
    with torch.inference_mode():
        server = Server(model, given.requests, max(lens) + steps)
        first, logits = server.prefill(prompts)
        tokens, more, seconds = server.decode(first, lens, steps - 1)
        tokens = torch.cat((first.cpu()[None], tokens))
        differ, error, margin = compare(model, prompts, tokens, torch.cat((logits[None], more)))
    print(f"{given.requests} requests of {', '.join(map(str, lens))} tokens, {model.layers} layers, on {model.device}")
    print(f"{steps} tokens each, {seconds * 1e3:.2f} ms a step of decode; the first request's: {tokens[:8, 0].tolist()} ...")
    count, kinds = tokens.numel(), tokens.unique().numel()
    print(f"{count - differ} of {count} tokens as PyTorch chooses them, {kinds} of them different")
    print(f"logits differ by {error:.4f} at most; the best two are {margin:.4f} apart at least")
    return 1 if differ else 0


if __name__ == "__main__":
    raise SystemExit(main())
