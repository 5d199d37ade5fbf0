"""Whether a result is right, before anything is said about how fast it came."""

import math

# Elements that are compared at once: float64 copies of them must fit beside what is timed.
PIECE = 1 << 25

# Mantissa bits and the smallest normal exponent.
FORMS = {
    "torch.float16": (10, -14),
    "torch.bfloat16": (7, -126),
    "torch.float32": (23, -126),
    "torch.float8_e4m3fn": (3, -6),
    "torch.float8_e5m2": (2, -14),
}

NAMES = {
    "torch.float16": "f16", "torch.bfloat16": "bf16", "torch.float32": "f32", "torch.int32": "i32",
    "torch.int64": "i64", "torch.uint8": "u8", "torch.bool": "bool", "torch.float8_e4m3fn": "e4m3",
    "torch.float8_e5m2": "e5m2",
}

# What is asked of others: what their own tests ask, or less. Ours is what op.toml says.
PEERS = {
    "f16": {"abs": 2e-3, "rel": 2e-3},
    "bf16": {"abs": 1.6e-2, "rel": 1.6e-2},
    "f32": {"abs": 1e-5, "rel": 1e-4},
    "e4m3": {"ulp": 1.0},
    "e5m2": {"ulp": 1.0},
}


def words(bound):
    """A bound as a person writes it."""
    if bound is None:
        return "exact"
    return f"{bound['ulp']:g} ulp" if "ulp" in bound else f"{bound['abs']:g} + {bound['rel']:g}·|ref|"


class Verdict:
    """How far a result is from what it must be. `error` counts in units of what is allowed: above 1 is wrong."""

    def __init__(self, tolerance):
        self.tolerance = tolerance
        self.error, self.max_abs, self.max_rel, self.wrong, self.elements = 0.0, 0.0, 0.0, 0, 0
        self.why = None

    @property
    def ok(self):
        return self.why is None and self.elements > 0 and self.error <= 1.0

    def refuse(self, why):
        self.why, self.error = self.why or why, math.inf

    def join(self, other, name):
        """Takes in the verdict of another output."""
        if other.why:
            self.refuse(f"{name}: {other.why}")
        if other.tolerance not in self.tolerance.split("; "):
            self.tolerance = "; ".join(filter(None, (self.tolerance, other.tolerance)))
        for field in ("error", "max_abs", "max_rel"):
            setattr(self, field, max(getattr(self, field), getattr(other, field)))
        self.wrong += other.wrong
        self.elements += other.elements

    def facts(self):
        """For a row. JSON has no infinity."""
        def number(value):
            return round(value, 9) if math.isfinite(value) else None

        return {
            "ok": self.ok,
            "error": number(self.error),
            "max_abs": number(self.max_abs),
            "max_rel": number(self.max_rel),
            "wrong": self.wrong,
            "elements": self.elements,
            "tolerance": self.tolerance,
            "why": self.why,
        }


def bound_of(tolerances, dtype):
    """The bound for an element type, of op.toml's table; without a row only equal is right."""
    bound = tolerances.get(NAMES[str(dtype)])
    zero = bound is not None and not any(bound.values())
    return None if zero else bound


def compare(got, expected, bound):
    """Compares two tensors of one type. Where something is not finite both must be the same; NaN is never right."""
    import torch

    verdict = Verdict(words(bound))
    if got.shape != expected.shape or got.dtype != expected.dtype:
        verdict.refuse(f"expected {expected.dtype} {list(expected.shape)}, got {got.dtype} {list(got.shape)}")
        return verdict
    verdict.elements = got.numel()
    got, expected = got.reshape(-1), expected.reshape(-1)
    for at in range(0, got.numel(), PIECE):
        a, b = got[at : at + PIECE], expected[at : at + PIECE]
        _piece(torch, a, b, bound, verdict)
    if verdict.wrong and verdict.error <= 1.0:
        verdict.error = math.inf
    return verdict


def _piece(torch, got, expected, bound, verdict):
    if not got.dtype.is_floating_point or bound is None:
        # By bytes: also the sign of a zero counts where equality is asked for.
        differ = got.view(torch.uint8) != expected.view(torch.uint8) if got.dtype.is_floating_point else got != expected
        if got.dtype.is_floating_point:
            differ = differ.view(got.numel(), -1).any(dim=1)
        wrong = int(differ.sum())
        verdict.wrong += wrong
        if wrong:
            verdict.error = math.inf
        return
    a, b = got.double(), expected.double()
    same = (a == b) & torch.isfinite(b) | (torch.isinf(b) & (a == b))
    distance = torch.where(same, 0.0, (a - b).abs())
    size = b.abs()
    unit = _ulp(torch, size, got.dtype)
    # A bound in numbers is one around the exact reference; ours was rounded to the type, by up to half a unit.
    allowed = bound["ulp"] * unit if "ulp" in bound else bound["abs"] + bound["rel"] * size + unit / 2
    error = torch.where(same, 0.0, distance / allowed).nan_to_num(nan=math.inf)
    verdict.wrong += int((error > 1.0).sum())
    verdict.error = max(verdict.error, float(error.max()))
    distance = distance.nan_to_num(nan=math.inf)
    verdict.max_abs = max(verdict.max_abs, float(distance.max()))
    relative = torch.where(size > 0, distance / size, 0.0).nan_to_num(nan=math.inf)
    verdict.max_rel = max(verdict.max_rel, float(relative.max()))


def _ulp(torch, size, dtype):
    """The distance of neighbouring values of a type around a size."""
    bits, smallest = FORMS[str(dtype)]
    exponent = torch.frexp(size)[1].clamp(min=smallest + 1) - 1
    exponent = torch.where(size == 0, smallest, exponent)
    # By its bits: the power function of a GPU is not exact.
    return ((exponent.long() - bits + 1023) << 52).view(torch.float64)


def outside(torch, tokens, probabilities, top_k=None, top_p=None, min_p=None):
    """How many sampled tokens no correct sampler gives: out of range, of probability 0, or outside the filter.

    A token is inside top-k if fewer than k are larger, inside top-p if those that are larger hold less than p. A mass
    that float32 sums cannot tell from p is given the benefit of 1e-6.
    """
    tokens = tokens.reshape(-1).long()
    valid = (tokens >= 0) & (tokens < probabilities.shape[1])
    rows = torch.arange(tokens.numel(), device=tokens.device)
    bad = ~valid
    for at in range(0, tokens.numel(), 64):
        part = slice(at, at + 64)
        p = probabilities[part].double()
        mine = p[rows[part] - at, tokens[part].clamp(0, p.shape[1] - 1)]
        larger = p > mine[:, None]
        bad[part] |= mine <= 0
        if top_k is not None:
            bad[part] |= larger.sum(dim=1) >= top_k
        if top_p is not None:
            bad[part] |= torch.where(larger, p, 0.0).sum(dim=1) >= top_p + 1e-6
        if min_p is not None:
            bad[part] |= mine < min_p * p.max(dim=1).values * (1 - 1e-6)
    return int(bad.sum())
