"""Rotary embeddings."""

import math

from parbake.bench.workload import Workload

THETA = 1e4


class RopeInPlace(Workload):
    function = "apply_rope_pos_ids_inplace"
    small = {"tokens": 4, "heads": 4, "kv_heads": 2, "dim": 64}
    # Peers take sine and cosine from f32 angles, which lose bits as positions grow.
    peers = {"bf16": {"abs": 3e-2, "rel": 3e-2}}

    def inputs(self, make):
        make.normal("q", (self.tokens, self.heads, self.dim), self.dtype)
        make.normal("k", (self.tokens, self.kv_heads, self.dim), self.dtype)
        make.given("positions", "i32", lambda i: make.permutation(8 * self.tokens)[: self.tokens])

    def bytes(self):
        return 2 * 2 * self.tokens * (self.heads + self.kv_heads) * self.dim + 4 * self.tokens

    def flop(self):
        return 3 * self.tokens * (self.heads + self.kv_heads) * self.dim

    def results(self, given, result):
        return {"q": given.q, "k": given.k}

    def parbake(self, fw):
        rope = fw.parbake(self.function)
        return lambda s: rope(s.q, s.k, s.positions, rope_theta=THETA)

    def torch(self, fw):
        torch, half = fw.torch, self.dim // 2
        power = -torch.arange(half, device=fw.device.place, dtype=torch.float32) / half
        frequency = THETA**power

        def run(s):
            angle = s.positions[:, None].float() * frequency
            cos, sin = angle.cos()[:, None], angle.sin()[:, None]
            for tensor in (s.q, s.k):
                a, b = tensor[..., :half].float(), tensor[..., half:].float()
                tensor[..., :half] = a * cos - b * sin
                tensor[..., half:] = b * cos + a * sin

        return run

    def triton(self, fw):
        kernels = fw.triton()
        return lambda s: kernels.rope(s.q, s.k, s.positions, math.log2(THETA))

    def flashinfer(self, fw):
        rope = fw.flashinfer("rope", self.function)
        return lambda s: rope(s.q, s.k, s.positions, rope_theta=THETA)


WORKLOADS = [
    RopeInPlace("U8", tokens=4096, heads=32, kv_heads=8, dim=128),
]
