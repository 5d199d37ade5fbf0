"""supports, explain and prepare. They need no framework."""

from harness import check

import parbake


def refused(kind, words, call):
    try:
        call()
    except Exception as error:
        assert type(error) is kind and all(w in str(error) for w in words), repr(error)
    else:
        raise AssertionError("no error")


@check()
def supports_says_whether_and_from_where():
    found = parbake.supports("rmsnorm", dtype="f32", target="host")
    assert found and found.support in ("bundle", "store", "jit") and found.runs_on == "host", found
    assert found.uri.startswith("rmsnorm-f32-") and "rmsnorm" in repr(found)
    never = parbake.supports("norm/rmsnorm", dtype="bf16", target="sm_75")
    assert not never and never.support == "unsupported" and "sm_80" in never.reason, never.document


@check()
def names_of_functions_and_of_dtypes_are_taken():
    import numpy

    one = parbake.supports(parbake.gemma_rmsnorm, dtype=numpy.float16, target="sm_90a")
    two = parbake.supports("rmsnorm", dtype="f16", target="sm_90a")
    assert one.document == two.document
    assert parbake.supports("rmsnorm", dtype=numpy.dtype("float32"), target="host").uri.startswith("rmsnorm-f32")


@check("torch")
def dtypes_of_pytorch_are_taken():
    import torch

    assert parbake.supports("rmsnorm", dtype=torch.bfloat16, target="sm_90").uri.startswith("rmsnorm-bf16")


@check()
def explain_gives_the_whole_decision():
    why = parbake.explain("rmsnorm", dtype="f16", target="host")
    # The first places are bundles, or the word that there are none.
    assert "bundle" in why.decision["steps"][0]["place"], why
    assert "spec_id" in why.identities


@check()
def prepare_has_kernels_ready():
    done = parbake.prepare("rmsnorm,fused_add_rmsnorm", dtype="f32", block=512, rows=1, vec=16, peel=0, target="host")
    assert done.document, done
    assert parbake.supports("rmsnorm", dtype="f32", target="host").support in ("store", "bundle")


@check()
def answers_are_copied_and_pickled():
    import copy
    import pickle

    answer = parbake.supports("rmsnorm", dtype="f32", target="host")
    for other in (copy.copy(answer), copy.deepcopy(answer), pickle.loads(pickle.dumps(answer))):
        assert type(other) is type(answer) and other.document == answer.document and other.uri == answer.uri
    assert not hasattr(answer, "nothing")


@check()
def wrong_questions_are_refused():
    refused(ValueError, ["PB-1107", "rmsnrm"], lambda: parbake.supports("rmsnrm", dtype="f32", target="host"))
    refused(ValueError, ["PB-1108"], lambda: parbake.supports("rmsnorm", dtype="f8", target="host"))
    refused(ValueError, ["PB-1108"], lambda: parbake.explain("rmsnorm", dtyp="f32", target="host"))
    refused(ValueError, ["sm_9x"], lambda: parbake.supports("rmsnorm", dtype="f32", target="sm_9x"))
    refused(ValueError, ["dtype"], lambda: parbake.supports("rmsnorm", dtype="f32 block=1", target="host"))
    refused(TypeError, ["name of an op"], lambda: parbake.supports(3, target="host"))
    refused(ValueError, ["nothing/*"], lambda: parbake.prepare("nothing/*", target="host"))
    refused(ValueError, ["rmsnrm", "did you mean"], lambda: parbake.prepare("rmsnorm,rmsnrm", target="host"))
    refused(ValueError, ["0, 1, 3, 5 or 10", "2"], lambda: parbake.set_log_level(2))
    for level in (2**32 + 3, -(2**40), 2**31):
        refused(ValueError, ["0, 1, 3, 5 or 10", str(level)], lambda: parbake.set_log_level(level))
    for level in ("3", 3.0, None):
        refused(TypeError, ["set_log_level", "0, 1, 3, 5 or 10", repr(level)], lambda: parbake.set_log_level(level))
