"""The functions of FlashInfer that compute their angles: one for each way to say positions, scale and place."""

from parbake._arrays import changes


def apply_rope(q, k, indptr, offsets, rotary_dim=None, interleave=False, rope_scale=1, rope_theta=1e4, *, target=None):
    """Turns queries and keys by their positions.

    Takes the arguments of `flashinfer.rope.apply_rope`. The angle of pair i at a position is position · frequency, one
    product in f32; the frequency is theta^(-2i / rotary_dim) / rope_scale.

    Args:
        q: Queries [tokens, heads, head_dim], f16, bf16 or f32. The last dimension is dense, tokens and heads may have
            any stride: a slice of a fused projection is fine.
        k: Keys [tokens, kv_heads, head_dim], of the same element type.
        indptr: Where the tokens of each request begin, i32 or i64 [requests + 1].
        offsets: Position of the first of them, of the same type [requests].
        rotary_dim: Columns that are turned, an even number; the others are as they were. None: all.
        interleave: Whether pairs are columns (2i, 2i + 1); otherwise (i, i + rotary_dim / 2).
        rope_scale: What frequencies are divided by.
        rope_theta: Base of the frequencies.
        target: "host" runs tensors in CPU memory on the CPU. Without it tensors are on a CUDA device.

    Returns:
        Queries and keys, turned.
    """
    at = {"indptr": indptr, "offsets": offsets}
    return _turned(q, k, False, at, rotary_dim, interleave, rope_scale, rope_theta, None, target)


def apply_rope_inplace(
    q,
    k,
    indptr,
    offsets,
    rotary_dim=None,
    interleave=False,
    rope_scale=1,
    rope_theta=1e4,
    *,
    target=None,
):
    """Turns queries and keys by their positions, in place.

    Takes the arguments of `flashinfer.rope.apply_rope_inplace`. The angle of pair i at a position is position ·
    frequency, one product in f32; the frequency is theta^(-2i / rotary_dim) / rope_scale.

    Args:
        q: Queries [tokens, heads, head_dim], f16, bf16 or f32. The last dimension is dense, tokens and heads may have
            any stride: a slice of a fused projection is fine.
        k: Keys [tokens, kv_heads, head_dim], of the same element type.
        indptr: Where the tokens of each request begin, i32 or i64 [requests + 1].
        offsets: Position of the first of them, of the same type [requests].
        rotary_dim: Columns that are turned, an even number; the others are as they were. None: all.
        interleave: Whether pairs are columns (2i, 2i + 1); otherwise (i, i + rotary_dim / 2).
        rope_scale: What frequencies are divided by.
        rope_theta: Base of the frequencies.
        target: "host" runs tensors in CPU memory on the CPU. Without it tensors are on a CUDA device.

    Returns:
        None. From JAX, whose arrays do not change, new queries and keys.
    """
    at = {"indptr": indptr, "offsets": offsets}
    return _turned(q, k, True, at, rotary_dim, interleave, rope_scale, rope_theta, None, target)


def apply_rope_pos_ids(q, k, pos_ids, rotary_dim=None, interleave=False, rope_scale=1, rope_theta=1e4, *, target=None):
    """Turns queries and keys by their positions.

    Takes the arguments of `flashinfer.rope.apply_rope_pos_ids`. The angle of pair i at a position is position ·
    frequency, one product in f32; the frequency is theta^(-2i / rotary_dim) / rope_scale.

    Args:
        q: Queries [tokens, heads, head_dim], f16, bf16 or f32. The last dimension is dense, tokens and heads may have
            any stride: a slice of a fused projection is fine.
        k: Keys [tokens, kv_heads, head_dim], of the same element type.
        pos_ids: Position of each token, i32 or i64 [tokens].
        rotary_dim: Columns that are turned, an even number; the others are as they were. None: all.
        interleave: Whether pairs are columns (2i, 2i + 1); otherwise (i, i + rotary_dim / 2).
        rope_scale: What frequencies are divided by.
        rope_theta: Base of the frequencies.
        target: "host" runs tensors in CPU memory on the CPU. Without it tensors are on a CUDA device.

    Returns:
        Queries and keys, turned.
    """
    at = {"pos_ids": pos_ids}
    return _turned(q, k, False, at, rotary_dim, interleave, rope_scale, rope_theta, None, target)


def apply_rope_pos_ids_inplace(
    q,
    k,
    pos_ids,
    rotary_dim=None,
    interleave=False,
    rope_scale=1,
    rope_theta=1e4,
    *,
    target=None,
):
    """Turns queries and keys by their positions, in place.

    Takes the arguments of `flashinfer.rope.apply_rope_pos_ids_inplace`. The angle of pair i at a position is position ·
    frequency, one product in f32; the frequency is theta^(-2i / rotary_dim) / rope_scale.

    Args:
        q: Queries [tokens, heads, head_dim], f16, bf16 or f32. The last dimension is dense, tokens and heads may have
            any stride: a slice of a fused projection is fine.
        k: Keys [tokens, kv_heads, head_dim], of the same element type.
        pos_ids: Position of each token, i32 or i64 [tokens].
        rotary_dim: Columns that are turned, an even number; the others are as they were. None: all.
        interleave: Whether pairs are columns (2i, 2i + 1); otherwise (i, i + rotary_dim / 2).
        rope_scale: What frequencies are divided by.
        rope_theta: Base of the frequencies.
        target: "host" runs tensors in CPU memory on the CPU. Without it tensors are on a CUDA device.

    Returns:
        None. From JAX, whose arrays do not change, new queries and keys.
    """
    at = {"pos_ids": pos_ids}
    return _turned(q, k, True, at, rotary_dim, interleave, rope_scale, rope_theta, None, target)


def apply_llama31_rope(
    q,
    k,
    indptr,
    offsets,
    rotary_dim=None,
    interleave=False,
    rope_scale=8,
    rope_theta=5e5,
    low_freq_factor=1,
    high_freq_factor=4,
    old_context_len=8192,
    *,
    target=None,
):
    """Turns queries and keys by their positions, with the scaling of Llama 3.1.

    Takes the arguments of `flashinfer.rope.apply_llama31_rope`. The angle of pair i at a position is position ·
    frequency, one product in f32; frequencies of fewer than low_freq_factor turns in the old context are divided by
    rope_scale, those of more than high_freq_factor are kept, and between them it goes over.

    Args:
        q: Queries [tokens, heads, head_dim], f16, bf16 or f32. The last dimension is dense, tokens and heads may have
            any stride: a slice of a fused projection is fine.
        k: Keys [tokens, kv_heads, head_dim], of the same element type.
        indptr: Where the tokens of each request begin, i32 or i64 [requests + 1].
        offsets: Position of the first of them, of the same type [requests].
        rotary_dim: Columns that are turned, an even number; the others are as they were. None: all.
        interleave: Whether pairs are columns (2i, 2i + 1); otherwise (i, i + rotary_dim / 2).
        rope_scale: What frequencies are divided by.
        rope_theta: Base of the frequencies.
        low_freq_factor: Turns in the old context up to which frequencies are divided.
        high_freq_factor: Turns in the old context from which they are kept.
        old_context_len: Context length before the scaling.
        target: "host" runs tensors in CPU memory on the CPU. Without it tensors are on a CUDA device.

    Returns:
        Queries and keys, turned.
    """
    at = {"indptr": indptr, "offsets": offsets}
    llama = (low_freq_factor, high_freq_factor, old_context_len)
    return _turned(q, k, False, at, rotary_dim, interleave, rope_scale, rope_theta, llama, target)


def apply_llama31_rope_inplace(
    q,
    k,
    indptr,
    offsets,
    rotary_dim=None,
    interleave=False,
    rope_scale=8,
    rope_theta=5e5,
    low_freq_factor=1,
    high_freq_factor=4,
    old_context_len=8192,
    *,
    target=None,
):
    """Turns queries and keys by their positions, with the scaling of Llama 3.1, in place.

    Takes the arguments of `flashinfer.rope.apply_llama31_rope_inplace`. The angle of pair i at a position is position ·
    frequency, one product in f32; frequencies of fewer than low_freq_factor turns in the old context are divided by
    rope_scale, those of more than high_freq_factor are kept, and between them it goes over.

    Args:
        q: Queries [tokens, heads, head_dim], f16, bf16 or f32. The last dimension is dense, tokens and heads may have
            any stride: a slice of a fused projection is fine.
        k: Keys [tokens, kv_heads, head_dim], of the same element type.
        indptr: Where the tokens of each request begin, i32 or i64 [requests + 1].
        offsets: Position of the first of them, of the same type [requests].
        rotary_dim: Columns that are turned, an even number; the others are as they were. None: all.
        interleave: Whether pairs are columns (2i, 2i + 1); otherwise (i, i + rotary_dim / 2).
        rope_scale: What frequencies are divided by.
        rope_theta: Base of the frequencies.
        low_freq_factor: Turns in the old context up to which frequencies are divided.
        high_freq_factor: Turns in the old context from which they are kept.
        old_context_len: Context length before the scaling.
        target: "host" runs tensors in CPU memory on the CPU. Without it tensors are on a CUDA device.

    Returns:
        None. From JAX, whose arrays do not change, new queries and keys.
    """
    at = {"indptr": indptr, "offsets": offsets}
    llama = (low_freq_factor, high_freq_factor, old_context_len)
    return _turned(q, k, True, at, rotary_dim, interleave, rope_scale, rope_theta, llama, target)


def apply_llama31_rope_pos_ids(
    q,
    k,
    pos_ids,
    rotary_dim=None,
    interleave=False,
    rope_scale=8,
    rope_theta=5e5,
    low_freq_factor=1,
    high_freq_factor=4,
    old_context_len=8192,
    *,
    target=None,
):
    """Turns queries and keys by their positions, with the scaling of Llama 3.1.

    Takes the arguments of `flashinfer.rope.apply_llama31_rope_pos_ids`. The angle of pair i at a position is position ·
    frequency, one product in f32; frequencies of fewer than low_freq_factor turns in the old context are divided by
    rope_scale, those of more than high_freq_factor are kept, and between them it goes over.

    Args:
        q: Queries [tokens, heads, head_dim], f16, bf16 or f32. The last dimension is dense, tokens and heads may have
            any stride: a slice of a fused projection is fine.
        k: Keys [tokens, kv_heads, head_dim], of the same element type.
        pos_ids: Position of each token, i32 or i64 [tokens].
        rotary_dim: Columns that are turned, an even number; the others are as they were. None: all.
        interleave: Whether pairs are columns (2i, 2i + 1); otherwise (i, i + rotary_dim / 2).
        rope_scale: What frequencies are divided by.
        rope_theta: Base of the frequencies.
        low_freq_factor: Turns in the old context up to which frequencies are divided.
        high_freq_factor: Turns in the old context from which they are kept.
        old_context_len: Context length before the scaling.
        target: "host" runs tensors in CPU memory on the CPU. Without it tensors are on a CUDA device.

    Returns:
        Queries and keys, turned.
    """
    at = {"pos_ids": pos_ids}
    llama = (low_freq_factor, high_freq_factor, old_context_len)
    return _turned(q, k, False, at, rotary_dim, interleave, rope_scale, rope_theta, llama, target)


def apply_llama31_rope_pos_ids_inplace(
    q,
    k,
    pos_ids,
    rotary_dim=None,
    interleave=False,
    rope_scale=8,
    rope_theta=5e5,
    low_freq_factor=1,
    high_freq_factor=4,
    old_context_len=8192,
    *,
    target=None,
):
    """Turns queries and keys by their positions, with the scaling of Llama 3.1, in place.

    Takes the arguments of `flashinfer.rope.apply_llama31_rope_pos_ids_inplace`. The angle of pair i at a position is
    position · frequency, one product in f32; frequencies of fewer than low_freq_factor turns in the old context are
    divided by rope_scale, those of more than high_freq_factor are kept, and between them it goes over.

    Args:
        q: Queries [tokens, heads, head_dim], f16, bf16 or f32. The last dimension is dense, tokens and heads may have
            any stride: a slice of a fused projection is fine.
        k: Keys [tokens, kv_heads, head_dim], of the same element type.
        pos_ids: Position of each token, i32 or i64 [tokens].
        rotary_dim: Columns that are turned, an even number; the others are as they were. None: all.
        interleave: Whether pairs are columns (2i, 2i + 1); otherwise (i, i + rotary_dim / 2).
        rope_scale: What frequencies are divided by.
        rope_theta: Base of the frequencies.
        low_freq_factor: Turns in the old context up to which frequencies are divided.
        high_freq_factor: Turns in the old context from which they are kept.
        old_context_len: Context length before the scaling.
        target: "host" runs tensors in CPU memory on the CPU. Without it tensors are on a CUDA device.

    Returns:
        None. From JAX, whose arrays do not change, new queries and keys.
    """
    at = {"pos_ids": pos_ids}
    llama = (low_freq_factor, high_freq_factor, old_context_len)
    return _turned(q, k, True, at, rotary_dim, interleave, rope_scale, rope_theta, llama, target)


def _turned(q, k, in_place, at, rotary_dim, interleave, rope_scale, rope_theta, llama, target):
    names = ("low_freq_factor", "high_freq_factor", "old_context_len")
    changing = in_place and changes(q)
    outputs = {"q_out": q, "k_out": k} if changing else {}
    turned = _apply_rope(
        q,
        k,
        **at,
        rotary_dim=rotary_dim,
        interleave=interleave,
        rope_scale=rope_scale,
        rope_theta=rope_theta,
        **dict(zip(names, llama or ())),
        **outputs,
        target=target,
    )
    return None if changing else turned
