"""The functions of FlashInfer that turn and convert to FP8. The keys of MLA have one head, which has no dimension."""

from parbake._arrays import dtype, empty


def rope_quantize_fp8(
    q_rope,
    k_rope,
    q_nope,
    k_nope,
    cos_sin_cache,
    pos_ids,
    is_neox=True,
    quantize_dtype=None,
    quant_scale_q=1.0,
    quant_scale_kv=1.0,
    q_rope_out=None,
    k_rope_out=None,
    q_nope_out=None,
    k_nope_out=None,
    enable_pdl=False,
    *,
    target=None,
):
    """Turns the rotary part of queries and keys, and converts all of them to FP8: saturate(x · scale).

    Takes the arguments of `flashinfer.rope.rope_quantize_fp8`.

    Args:
        q_rope: Columns of queries that are turned, [tokens, heads, rotary_dim], f16 or bf16.
        k_rope: Those of keys, [tokens, kv_heads, rotary_dim], or [tokens, rotary_dim] for MLA.
        q_nope: The other columns of queries, [tokens, heads, columns], or None.
        k_nope: Those of keys, as k_rope, or None.
        cos_sin_cache: f32 [positions, rotary_dim]: for each position rotary_dim / 2 cosines, then as many sines.
        pos_ids: Position of each token, i32 or i64 [tokens].
        is_neox: Whether pairs are columns (i, i + rotary_dim / 2); otherwise (2i, 2i + 1).
        quantize_dtype: The 8-bit type: that of the outputs that are given, else e4m3.
        quant_scale_q: What queries are multiplied by.
        quant_scale_kv: What keys are multiplied by.
        q_rope_out: Where each part goes; allocated if it is not given.
        k_rope_out: See q_rope_out.
        q_nope_out: See q_rope_out.
        k_nope_out: See q_rope_out.
        enable_pdl: Accepted and ignored: launches are not chained to the kernel before.
        target: "host" runs tensors in CPU memory on the CPU. Without it tensors are on a CUDA device.

    Returns:
        (q_rope_out, k_rope_out, q_nope_out, k_nope_out), in the shapes of the inputs; of a part that is None, a tensor
        without columns.
    """
    outputs = (q_rope_out, k_rope_out, q_nope_out, k_nope_out)
    known = [quantize_dtype, *(dtype(x) for x in outputs if x is not None), "e4m3"]
    quant = next(x for x in known if x is not None)
    if q_nope is None:
        q_nope = empty(q_rope, (*q_rope.shape[:-1], 0))
    if k_nope is None:
        k_nope = empty(k_rope, (*k_rope.shape[:-1], 0))
    inputs = (q_rope, k_rope, q_nope, k_nope)
    q_rope_out, k_rope_out, q_nope_out, k_nope_out = (
        _with_head(empty(x, x.shape, quant) if out is None else out) for x, out in zip(inputs, outputs)
    )
    mla = len(k_rope.shape) == 2
    turned = rope_quantize(
        q_rope,
        _with_head(k_rope),
        pos_ids,
        cos_sin_cache,
        q_nope=q_nope,
        k_nope=_with_head(k_nope),
        interleave=not is_neox,
        quant_scale_q=quant_scale_q,
        quant_scale_kv=quant_scale_kv,
        q_rope_out=q_rope_out,
        k_rope_out=k_rope_out,
        q_nope_out=q_nope_out,
        k_nope_out=k_nope_out,
        target=target,
    )
    q_rope_out, k_rope_out, q_nope_out, k_nope_out = turned
    return (q_rope_out, k_rope_out[:, 0], q_nope_out, k_nope_out[:, 0]) if mla else turned


def mla_rope_quantize_fp8(
    q_rope,
    k_rope,
    q_nope,
    k_nope,
    cos_sin_cache,
    pos_ids,
    is_neox=True,
    quantize_dtype=None,
    quant_scale_q=1.0,
    quant_scale_kv=1.0,
    q_rope_out=None,
    k_rope_out=None,
    q_nope_out=None,
    k_nope_out=None,
    enable_pdl=False,
    *,
    target=None,
):
    """Turns the rotary part of queries and keys of MLA, and converts all of them to FP8: saturate(x · scale).

    Takes the arguments of `flashinfer.rope.mla_rope_quantize_fp8`: those of rope_quantize_fp8, which see, with keys
    [tokens, columns].

    Args:
        q_rope: Columns of queries that are turned, [tokens, heads, rotary_dim], f16 or bf16.
        k_rope: Those of keys, [tokens, rotary_dim].
        q_nope: The other columns of queries, [tokens, heads, columns].
        k_nope: The other columns of keys, [tokens, columns].
        cos_sin_cache: f32 [positions, rotary_dim]: for each position rotary_dim / 2 cosines, then as many sines.
        pos_ids: Position of each token, i32 or i64 [tokens].
        is_neox: Whether pairs are columns (i, i + rotary_dim / 2); otherwise (2i, 2i + 1).
        quantize_dtype: The 8-bit type: that of the outputs that are given, else e4m3.
        quant_scale_q: What queries are multiplied by.
        quant_scale_kv: What keys are multiplied by.
        q_rope_out: Where each part goes; allocated if it is not given.
        k_rope_out: See q_rope_out.
        q_nope_out: See q_rope_out.
        k_nope_out: See q_rope_out.
        enable_pdl: Accepted and ignored: launches are not chained to the kernel before.
        target: "host" runs tensors in CPU memory on the CPU. Without it tensors are on a CUDA device.

    Returns:
        (q_rope_out, k_rope_out, q_nope_out, k_nope_out), in the shapes of the inputs.
    """
    return rope_quantize_fp8(
        q_rope,
        k_rope,
        q_nope,
        k_nope,
        cos_sin_cache,
        pos_ids,
        is_neox,
        quantize_dtype,
        quant_scale_q,
        quant_scale_kv,
        q_rope_out,
        k_rope_out,
        q_nope_out,
        k_nope_out,
        enable_pdl,
        target=target,
    )


def _with_head(x):
    return x[:, None] if len(x.shape) == 2 else x
