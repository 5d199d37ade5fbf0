"""The rows M1 to M9, and the launches of two of them one by one."""

import statistics

import torch
from moe_setup import BF16, E4M3, Experts, Where, randn, routed

# What the chip is measured to do: products in bf16, what is assumed of those in 8 bits, and bytes from memory.
FLOPS, NARROW, BYTES = 790e12, 1500e12, 4.3e12


class Row:
    def __init__(self, what, tokens, experts, k, hidden, inner, narrow=False, zipf=False, of=1):
        if Where.host:
            tokens, experts, hidden, inner = min(tokens, 24), min(experts, 4 * of), 256, 128
            k = min(k, 2)
        self.what, self.tokens, self.experts, self.k, self.hidden, self.inner = what, tokens, experts, k, hidden, inner
        self.narrow, self.zipf, self.of = narrow, zipf, of

    def make(self):
        self.layer = Experts(self.experts // self.of, self.hidden, self.inner, self.narrow)
        self.x = randn(self.tokens, self.hidden, dtype=BF16)
        self.weights, self.ids = routed(self.tokens, self.experts, self.k, self.zipf)

    def run(self):
        return self.layer.run(self.x, self.ids, self.weights, ranks=self.of)

    def floor(self):
        """Microseconds that the products or the bytes take: of the experts that some token goes to."""
        here = self.ids[self.ids < self.layer.count]
        each = 3 * self.hidden * self.inner
        size = len(here.unique()) * each * (1 if self.narrow else 2) + 4 * self.tokens * self.hidden
        return max(2 * here.numel() * each / (NARROW if self.narrow else FLOPS), size / BYTES) * 1e6, 2 * here.numel() * each


def described():
    return {
        "M1": Row("Mixtral-8x7B", 1, 8, 2, 4096, 14336),
        "M2": Row("Mixtral-8x7B", 64, 8, 2, 4096, 14336),
        "M3": Row("Mixtral-8x7B", 4096, 8, 2, 4096, 14336),
        "M4": Row("Qwen3-30B-A3B", 64, 128, 8, 2048, 768),
        "M4z": Row("Qwen3-30B-A3B, Zipf", 64, 128, 8, 2048, 768, zipf=True),
        "M5": Row("Qwen3-30B-A3B", 32768, 128, 8, 2048, 768),
        "M5z": Row("Qwen3-30B-A3B, Zipf", 32768, 128, 8, 2048, 768, zipf=True),
        "M6": Row("DeepSeek-V3 TP8, 8 bits", 64, 256, 8, 7168, 256, True),
        "M7": Row("DeepSeek-V3 TP8, 8 bits", 2048, 256, 8, 7168, 256, True),
        # 1024 choices for the 8 experts of one of 32 ranks.
        "M8": Row("DeepSeek-V3 EP32, 8 bits", 4096, 256, 8, 7168, 2048, True, of=32),
        "M9": Row("gpt-oss-120b", 64, 128, 4, 2880, 2880),
    }


def timed(call, calls=4, replays=15):
    """Microseconds of a call, in a graph of several."""
    if Where.host:
        call()
        return float("nan")
    for _ in range(3):
        call()
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream), torch.cuda.graph(graph, stream=stream):
        for _ in range(calls):
            call()
    times = []
    for _ in range(replays + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / calls)
    return statistics.median(times[3:])


class Torch:
    """The same layer by torch's grouped products of bf16; weights of 8 bits are widened beforehand."""

    def __init__(self, row):
        layer = row.layer
        w1, w2 = (
            (layer.w1, layer.w2) if not row.narrow else (layer.w1.to(BF16), layer.w2.to(BF16))
        )
        self.w1, self.w2, self.row = w1.transpose(1, 2), w2.transpose(1, 2), row
        self.product = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm

    def run(self):
        row, experts = self.row, self.row.layer.count
        ids = row.ids.flatten().long()
        ids = ids.masked_fill(ids >= experts, experts)
        order = ids.argsort(stable=True)
        counts = torch.zeros(experts + 1, dtype=torch.int32, device=ids.device)
        counts.index_add_(0, ids, torch.ones_like(ids, dtype=torch.int32))
        ends = counts[:experts].cumsum(0, dtype=torch.int32)
        token = order // row.k
        both = self.product(row.x[token], self.w1, offs=ends)
        gate, up = both.chunk(2, -1)
        y = self.product(torch.nn.functional.silu(gate) * up, self.w2, offs=ends)
        y = torch.where((ids[order] < experts)[:, None], y * row.weights.flatten()[order][:, None], 0)
        return torch.zeros(row.x.shape, dtype=torch.float32, device=ids.device).index_add_(0, token, y.float()).to(BF16)


def measure(name):
    row = described()[name]
    row.make()
    out, few = row.run(), torch.arange(0, row.tokens, max(1, row.tokens // 16), device=Where.device)
    # Rows do not know each other, so that some stand for all.
    worst = row.layer.near(out[few], row.layer.reference(row.x[few], row.ids[few], row.weights[few]))
    ours, (floor, flops) = timed(row.run), row.floor()
    try:
        theirs = timed(Torch(row).run)
    except (RuntimeError, AttributeError) as error:
        theirs = float("nan")
        print(f"torch: {error}")
    detail = f"{row.what}, {row.tokens} tokens: {ours:.1f} us, {flops / ours / 1e6:.0f} TFLOP/s, floor {floor:.1f} us "
    detail += f"({floor / ours:.0%}), torch {theirs:.1f} us ({theirs / ours:.2f}x), error {worst:.1e}"
    return {"detail": detail, "us": ours, "floor": floor, "torch": theirs}


def parts(name):
    """Each launch of a layer alone, its inputs as they are there."""
    import parbake
    from parbake._attention.planned import processors

    row = described()[name.split()[0]]
    row.make()
    layer, choices, where = row.layer, row.tokens * row.k, Where.target
    common = {"processors": processors(torch.device(Where.device)), **where}
    logits = randn(row.tokens, row.experts)
    align = lambda: parbake.moe_align(row.ids, experts=layer.count, capacity=choices, tiles=0, **where)
    rows, _, indptr, places = align()
    y, h = row.x.new_empty(choices, row.hidden), row.x.new_empty(choices, row.inner)
    calls = {"route": lambda: parbake.moe_route(logits, k=row.k, **where), "align": align}
    if row.narrow:
        s1, s2 = layer.scales
        q, s = parbake.fp8_quantize_per_token_group(row.x, out_dtype="e4m3", scale_dtype="f32", **where)
        q2, hs = torch.empty_like(h, dtype=E4M3), row.x.new_empty((choices, row.inner // 128), dtype=torch.float32)
        up = lambda: parbake.moe_gate_up_quant(q2, hs, q, s, layer.w1, s1, indptr, rows, **common)
        up()
        calls |= {
            "quantize": lambda: parbake.fp8_quantize_per_token_group(row.x, out_dtype="e4m3", scale_dtype="f32", **where),
            "gate, up, silu and quantize": up,
            "down": lambda: parbake.group_mm(y, q2, layer.w2, indptr, a_scale=hs, b_scale=s2, **common),
        }
    else:
        calls |= {
            "gate, up and silu": lambda: parbake.moe_gate_up(h, row.x, layer.w1, indptr, rows, **common),
            "down": lambda: parbake.group_mm(y, h, layer.w2, indptr, **common),
        }
    calls["finalize"] = lambda: parbake.moe_finalize(y, places, row.weights, **where)
    times = {what: timed(call, 1) for what, call in calls.items()}
    return {"detail": ", ".join(f"{what} {us:.1f} us" for what, us in times.items()), "us": times}


ROWS = dict.fromkeys(["M1", "M2", "M3", "M4", "M4z", "M5", "M5z", "M6", "M7", "M8", "M9"], measure)
PARTS = dict.fromkeys(["M4 launches", "M5 launches", "M6 launches", "M7 launches"], parts)
