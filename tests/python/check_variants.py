"""Scores of one's own: a variant gives what the built-in one does, and says by name what is wrong with it."""

import contextlib

from check_attention import KV_LENS, near, queries, setup, target, workspace
from harness import Setup, check


@contextlib.contextmanager
def refused(kind, *words):
    try:
        yield
    except kind as error:
        assert all(word in str(error) for word in words), str(error)
    else:
        raise AssertionError(f"no {kind.__name__}: {words}")


def batch():
    """A planned batch of decoding: its call, and float64."""
    torch, dense = setup()
    import parbake
    from parbake._attention.planned import plan_words, processors

    n, room = len(KV_LENS), workspace(torch).view(torch.float32)
    pages = dense.Pages(KV_LENS, 16, 2, 64, 64, torch.float16, Setup.device)
    q, count = queries(torch, n, 4), processors(torch.device(Setup.device))
    indptr, indices, last = pages.batch
    plan = torch.empty(plan_words(n, n, 2, 2, 4 * count), dtype=torch.int32, device=Setup.device)
    parbake.attention_plan(plan, indptr, n, 4, 2, 64, 16, kv_last_page_len=last, processors=count, **target())
    k, v = pages.cache("NHD", True)

    def call(score, **more):
        given = dict(kv_indices=indices, kv_last_page_len=last, processors=count, lse=True, **target(), **more)
        return parbake.attention.batch_attention(plan, room, q, k, v, indptr, score=score, **given)

    return torch, call, lambda **how: dense.batch(q, pages.k, pages.v, [1] * n, KV_LENS, **how)


@check("tvm_ffi", "torch")
def a_variant_computes():
    torch, call, want = batch()
    from parbake.attention import ScoreVariant

    cap = ScoreVariant("return cap * tanhf(x / cap);", params={"cap": "f32"}, name="soft_cap")
    for value in (1.5, 4):
        near(*call(cap.given(cap=value)), want(soft_cap=value))
    near(*call("modified", logits_soft_cap=1.5), want(soft_cap=1.5))
    slopes = torch.tensor([0.5, 0.25, 0.1, 0.0], device=Setup.device)
    steep = ScoreVariant(
        "return x + slope[at.head] * (at.key - at.position());",
        "return at.position() - at.key <= width;",
        params={"width": "i32", "slope": "f32*"},
        name="steep",
    )
    for width in (3, 100):
        near(*call(steep.given(slope=slopes, width=width)), want(slopes=slopes, window=width))
    near(*call(ScoreVariant("return 0.5f * x;")), want(scale=0.5 / 8))


@check("tvm_ffi", "torch")
def what_is_wrong_is_named():
    torch, call, _ = batch()
    import parbake
    from parbake.attention import ScoreVariant

    cap = ScoreVariant("return cap * tanhf(x / cap);", params={"cap": "f32"}, name="soft_cap")
    assert repr(cap.given(cap=1)) == "ScoreVariant('soft_cap').given(cap)"
    with refused(ValueError, "PB-2001", "soft_cap", "a value of cap"):
        call(cap)
    with refused(ValueError, "expected cap, got `cup`"):
        call(cap.given(cap=1.0, cup=2.0))
    with refused(TypeError, "cap", "a number, as of type f32"):
        call(cap.given(cap=torch.ones(1, device=Setup.device)))
    with refused(TypeError, "a tensor or a number"):
        call(cap.given(cap="much"))
    with refused(ValueError, "PB-2040", "`half`", "f64"):
        call(ScoreVariant("return x;", params={"half": "f64"}, name="half"))
    with refused(ValueError, "no gradients", "bias"):
        bias = torch.ones(4, device=Setup.device, requires_grad=True)
        call(ScoreVariant("return x + b[at.head];", params={"bias": "f32*"}, name="graded").given(bias=bias))
    with refused(parbake.Error, "typo.score", "why"):
        call(ScoreVariant("\nreturn why;", name="typo"))
    with refused(TypeError, "plain or modified"):
        call(cap.given)
    axes = dict(dtype="f16", kv="f16", qk_dim=64, vo_dim=64, target="host")
    found = parbake.supports("batch_attention", score=cap, **axes)
    assert found and "soft_cap_" in str(found.document), found.document


@check("tvm_ffi", "torch")
def nothing_is_traced_with_a_number_of_this_process():
    torch, call, _ = batch()
    from parbake.attention import ScoreVariant
    from torch.fx.experimental.proxy_tensor import make_fx

    half = ScoreVariant("return 0.5f * x;")
    with refused(NotImplementedError, "takes no ScoreVariant"):
        make_fx(lambda: call(half))()
