"""Sampling as FlashInfer calls it: thresholds are numbers or tensors, random numbers come from a generator or a seed."""

from parbake._arrays import cast, element, is_tensor

# A number above this may not reach the library whole.
_EXACT = 2**53 - 1


def sampling_from_probs(
    probs, indices=None, deterministic=True, generator=None, check_nan=False, seed=None, offset=None, return_valid=False,
    *, target=None,
):
    """A token from each row of probabilities.

    Takes the arguments of `flashinfer.sampling.sampling_from_probs`.

    Args:
        probs: Probabilities, f32 [sources, vocab], the last dimension dense; they need not add up to 1.
        indices: int32 or int64 [rows]: the row of `probs` for each token. Without it each row gives one token.
        deterministic: Accepted and ignored: results are always deterministic.
        generator: The PyTorch generator that seed and offset are taken from, if they are not given; without it that of the
            device. Its offset is advanced.
        check_nan: Whether to look for NaN first, which waits for the device.
        seed: A number, or an int64 or uint64 tensor [1] or [rows]. A graph that is replayed needs a tensor. A number above
            2^53 is folded below it.
        offset: Like `seed`. Calls with the same seed and offset draw the same numbers: give each its own.
        return_valid: Whether to return also which rows had something to draw from.
        target: "host" runs tensors in CPU memory on the CPU, for correctness. Without it tensors are on a CUDA device.

    Returns:
        The tokens [rows], of the type of `indices`, or int32; with `return_valid` a tuple with a bool tensor
        [rows]. A row with nothing to draw from, or with NaN, gives 0.

    Raises:
        TypeError: An argument is no tensor, or of another element type.
        ValueError: A shape, stride, device, overlap or number does not fit. Nothing was written.
        NotImplementedError: The combination does not exist on this architecture.
        parbake.NotCoveredError: No bundle has the kernel, and it cannot be compiled here.
        parbake.Error: Everything else.
    """
    return _sampled(probs, indices, generator, check_nan, seed, offset, return_valid, 1, target)


def sampling_from_logits(
    logits, indices=None, deterministic=True, generator=None, check_nan=False, seed=None, offset=None,
    *, target=None,
):
    """A token from each row of logits, as if from their softmax.

    Takes the arguments of `flashinfer.sampling.sampling_from_logits`.

    Args:
        logits: Logits, f32 [sources, vocab], the last dimension dense.
        indices: int32 or int64 [rows]: the row of `logits` for each token. Without it each row gives one token.
        deterministic: Accepted and ignored: results are always deterministic.
        generator: The PyTorch generator that seed and offset are taken from, if they are not given; without it that of the
            device. Its offset is advanced.
        check_nan: Whether to look for NaN first, which waits for the device.
        seed: A number, or an int64 or uint64 tensor [1] or [rows]. A graph that is replayed needs a tensor. A number above
            2^53 is folded below it.
        offset: Like `seed`. Calls with the same seed and offset draw the same numbers: give each its own.
        target: "host" runs tensors in CPU memory on the CPU, for correctness. Without it tensors are on a CUDA device.

    Returns:
        The tokens [rows], of the type of `indices`, or int32. A row with nothing to draw from, or with NaN, gives 0.

    Raises:
        TypeError: An argument is no tensor, or of another element type.
        ValueError: A shape, stride, device, overlap or number does not fit. Nothing was written.
        NotImplementedError: The combination does not exist on this architecture.
        parbake.NotCoveredError: No bundle has the kernel, and it cannot be compiled here.
        parbake.Error: Everything else.
    """
    return _sampled(logits, indices, generator, check_nan, seed, offset, False, logits.shape[1], target, logits=1)


def top_p_sampling_from_probs(
    probs, top_p, indices=None, deterministic=True, generator=None, check_nan=False, seed=None, offset=None, return_valid=False,
    *, target=None,
):
    """A token from each row of probabilities, of the most probable ones that make up `top_p`.

    Takes the arguments of `flashinfer.sampling.top_p_sampling_from_probs`.

    Args:
        probs: Probabilities, f32 [sources, vocab], the last dimension dense; they need not add up to 1.
        top_p: A number, or a float tensor [rows]: the fewest tokens, by probability, are kept whose share of the row's mass
            is at least this. 1 keeps all.
        indices: int32 or int64 [rows]: the row of `probs` for each token. Without it each row gives one token.
        deterministic: Accepted and ignored: results are always deterministic.
        generator: The PyTorch generator that seed and offset are taken from, if they are not given; without it that of the
            device. Its offset is advanced.
        check_nan: Whether to look for NaN first, which waits for the device.
        seed: A number, or an int64 or uint64 tensor [1] or [rows]. A graph that is replayed needs a tensor. A number above
            2^53 is folded below it.
        offset: Like `seed`. Calls with the same seed and offset draw the same numbers: give each its own.
        return_valid: Whether to return also which rows had something to draw from.
        target: "host" runs tensors in CPU memory on the CPU, for correctness. Without it tensors are on a CUDA device.

    Returns:
        The tokens [rows], of the type of `indices`, or int32; with `return_valid` a tuple with a bool tensor
        [rows]. A row with nothing to draw from, or with NaN, gives 0.

    Raises:
        TypeError: An argument is no tensor, or of another element type.
        ValueError: A shape, stride, device, overlap or number does not fit. Nothing was written.
        NotImplementedError: The combination does not exist on this architecture.
        parbake.NotCoveredError: No bundle has the kernel, and it cannot be compiled here.
        parbake.Error: Everything else.
    """
    return _sampled(probs, indices, generator, check_nan, seed, offset, return_valid, 32, target, top_p=top_p)


def top_k_sampling_from_probs(
    probs, top_k, indices=None, deterministic=True, generator=None, check_nan=False, seed=None, offset=None, return_valid=False,
    *, target=None,
):
    """A token from each row of probabilities, of the `top_k` most probable ones.

    Takes the arguments of `flashinfer.sampling.top_k_sampling_from_probs`.

    Args:
        probs: Probabilities, f32 [sources, vocab], the last dimension dense; they need not add up to 1.
        top_k: A number, or an integer tensor [rows]: how many tokens, by probability, are kept. Equal ones are kept by index.
        indices: int32 or int64 [rows]: the row of `probs` for each token. Without it each row gives one token.
        deterministic: Accepted and ignored: results are always deterministic.
        generator: The PyTorch generator that seed and offset are taken from, if they are not given; without it that of the
            device. Its offset is advanced.
        check_nan: Whether to look for NaN first, which waits for the device.
        seed: A number, or an int64 or uint64 tensor [1] or [rows]. A graph that is replayed needs a tensor. A number above
            2^53 is folded below it.
        offset: Like `seed`. Calls with the same seed and offset draw the same numbers: give each its own.
        return_valid: Whether to return also which rows had something to draw from.
        target: "host" runs tensors in CPU memory on the CPU, for correctness. Without it tensors are on a CUDA device.

    Returns:
        The tokens [rows], of the type of `indices`, or int32; with `return_valid` a tuple with a bool tensor
        [rows]. A row with nothing to draw from, or with NaN, gives 0.

    Raises:
        TypeError: An argument is no tensor, or of another element type.
        ValueError: A shape, stride, device, overlap or number does not fit. Nothing was written.
        NotImplementedError: The combination does not exist on this architecture.
        parbake.NotCoveredError: No bundle has the kernel, and it cannot be compiled here.
        parbake.Error: Everything else.
    """
    return _sampled(probs, indices, generator, check_nan, seed, offset, return_valid, 32, target, top_k=top_k)


def min_p_sampling_from_probs(
    probs, min_p, indices=None, deterministic=True, generator=None, check_nan=False, seed=None, offset=None, return_valid=False,
    *, target=None,
):
    """A token from each row of probabilities, of those with at least `min_p` of the greatest.

    Takes the arguments of `flashinfer.sampling.min_p_sampling_from_probs`.

    Args:
        probs: Probabilities, f32 [sources, vocab], the last dimension dense; they need not add up to 1.
        min_p: A number, or a float tensor [rows]: tokens are kept whose probability is at least this share of the greatest.
        indices: int32 or int64 [rows]: the row of `probs` for each token. Without it each row gives one token.
        deterministic: Accepted and ignored: results are always deterministic.
        generator: The PyTorch generator that seed and offset are taken from, if they are not given; without it that of the
            device. Its offset is advanced.
        check_nan: Whether to look for NaN first, which waits for the device.
        seed: A number, or an int64 or uint64 tensor [1] or [rows]. A graph that is replayed needs a tensor. A number above
            2^53 is folded below it.
        offset: Like `seed`. Calls with the same seed and offset draw the same numbers: give each its own.
        return_valid: Whether to return also which rows had something to draw from.
        target: "host" runs tensors in CPU memory on the CPU, for correctness. Without it tensors are on a CUDA device.

    Returns:
        The tokens [rows], of the type of `indices`, or int32; with `return_valid` a tuple with a bool tensor
        [rows]. A row with nothing to draw from, or with NaN, gives 0.

    Raises:
        TypeError: An argument is no tensor, or of another element type.
        ValueError: A shape, stride, device, overlap or number does not fit. Nothing was written.
        NotImplementedError: The combination does not exist on this architecture.
        parbake.NotCoveredError: No bundle has the kernel, and it cannot be compiled here.
        parbake.Error: Everything else.
    """
    return _sampled(probs, indices, generator, check_nan, seed, offset, return_valid, 32, target, min_p=min_p)


def top_k_top_p_sampling_from_probs(
    probs, top_k, top_p, indices=None, filter_apply_order="top_k_first", deterministic=True, generator=None, check_nan=False, seed=None, offset=None, return_valid=False,
    *, target=None,
):
    """A token from each row of probabilities, of those that `top_k` and `top_p` both keep.

    Takes the arguments of `flashinfer.sampling.top_k_top_p_sampling_from_probs`.

    Args:
        probs: Probabilities, f32 [sources, vocab], the last dimension dense; they need not add up to 1.
        top_k: A number, or an integer tensor [rows]: how many tokens, by probability, are kept. Equal ones are kept by index.
        top_p: A number, or a float tensor [rows]: the fewest tokens, by probability, are kept whose share of the row's mass
            is at least this. 1 keeps all.
        indices: int32 or int64 [rows]: the row of `probs` for each token. Without it each row gives one token.
        filter_apply_order: "top_k_first": top_p is a share of the mass of the first top_k tokens. "joint": of the whole row.
        deterministic: Accepted and ignored: results are always deterministic.
        generator: The PyTorch generator that seed and offset are taken from, if they are not given; without it that of the
            device. Its offset is advanced.
        check_nan: Whether to look for NaN first, which waits for the device.
        seed: A number, or an int64 or uint64 tensor [1] or [rows]. A graph that is replayed needs a tensor. A number above
            2^53 is folded below it.
        offset: Like `seed`. Calls with the same seed and offset draw the same numbers: give each its own.
        return_valid: Whether to return also which rows had something to draw from.
        target: "host" runs tensors in CPU memory on the CPU, for correctness. Without it tensors are on a CUDA device.

    Returns:
        The tokens [rows], of the type of `indices`, or int32; with `return_valid` a tuple with a bool tensor
        [rows]. A row with nothing to draw from, or with NaN, gives 0.

    Raises:
        TypeError: An argument is no tensor, or of another element type.
        ValueError: A shape, stride, device, overlap or number does not fit. Nothing was written.
        NotImplementedError: The combination does not exist on this architecture.
        parbake.NotCoveredError: No bundle has the kernel, and it cannot be compiled here.
        parbake.Error: Everything else.
    """
    first = _is_top_k_first(filter_apply_order)
    return _sampled(
        probs, indices, generator, check_nan, seed, offset, return_valid, 32, target,
        top_k=top_k, top_p=top_p, top_k_first=first,
    )


def top_k_top_p_sampling_from_logits(
    logits, top_k, top_p, indices=None, filter_apply_order="top_k_first", deterministic=True, generator=None, check_nan=False, seed=None, offset=None,
    *, target=None,
):
    """A token from each row of logits, of those that `top_k` and `top_p` both keep.

    Takes the arguments of `flashinfer.sampling.top_k_top_p_sampling_from_logits`.

    Args:
        logits: Logits, f32 [sources, vocab], the last dimension dense.
        top_k: A number, or an integer tensor [rows]: how many tokens, by probability, are kept. Equal ones are kept by index.
        top_p: A number, or a float tensor [rows]: the fewest tokens, by probability, are kept whose share of the row's mass
            is at least this. 1 keeps all.
        indices: int32 or int64 [rows]: the row of `logits` for each token. Without it each row gives one token.
        filter_apply_order: "top_k_first": top_p is a share of the mass of the first top_k tokens. "joint": of the whole row.
        deterministic: Accepted and ignored: results are always deterministic.
        generator: The PyTorch generator that seed and offset are taken from, if they are not given; without it that of the
            device. Its offset is advanced.
        check_nan: Whether to look for NaN first, which waits for the device.
        seed: A number, or an int64 or uint64 tensor [1] or [rows]. A graph that is replayed needs a tensor. A number above
            2^53 is folded below it.
        offset: Like `seed`. Calls with the same seed and offset draw the same numbers: give each its own.
        target: "host" runs tensors in CPU memory on the CPU, for correctness. Without it tensors are on a CUDA device.

    Returns:
        The tokens [rows], of the type of `indices`, or int32. A row with nothing to draw from, or with NaN, gives 0.

    Raises:
        TypeError: An argument is no tensor, or of another element type.
        ValueError: A shape, stride, device, overlap or number does not fit. Nothing was written.
        NotImplementedError: The combination does not exist on this architecture.
        parbake.NotCoveredError: No bundle has the kernel, and it cannot be compiled here.
        parbake.Error: Everything else.
    """
    first = _is_top_k_first(filter_apply_order)
    return _sampled(
        logits, indices, generator, check_nan, seed, offset, False, 32, target,
        top_k=top_k, top_p=top_p, top_k_first=first, logits=1,
    )


def _sampled(
    x, indices, generator, check_nan, seed, offset, return_valid, increment, target,
    *, top_k=2**31 - 1, top_p=1.0, min_p=0.0, top_k_first=False, logits=0,
):
    if check_nan and bool((x != x).any()):
        raise ValueError("parbake: expected no NaN in the rows (check_nan); nothing was launched")
    rows = (x if indices is None else indices).shape[0]
    seeds, offsets, seed, offset = _random(x, rows * increment, generator, seed, offset)
    top_ks, top_k = _many_or_one(top_k, "i32", 2**31 - 1)
    top_ps, top_p = _many_or_one(top_p, "f32", 1.0)
    min_ps, min_p = _many_or_one(min_p, "f32", 0.0)
    tokens, valid = sample(
        cast(x, "f32"), indices, top_ks, top_ps, min_ps, seeds, offsets, logits, min(top_k, 2**31 - 1), top_p, min_p,
        top_k_first, seed, offset, rows=rows, index="i32" if indices is None else None, target=target,
    )
    return (tokens, valid) if return_valid else tokens


def _many_or_one(value, dtype, default):
    return (cast(value, dtype), default) if is_tensor(value) else (None, value)


def _is_top_k_first(order):
    if order not in ("top_k_first", "joint"):
        raise ValueError(f'parbake: filter_apply_order: expected "top_k_first" or "joint", got {order!r}')
    return order == "top_k_first"


def _random(x, increment, generator, seed, offset):
    """Seeds, offsets, seed and offset as the op takes them."""
    if seed is None or offset is None:
        seed, offset = _from_generator(x, increment, generator)
    if is_tensor(seed) != is_tensor(offset):
        raise ValueError("parbake: expected seed and offset to be both tensors or both numbers")
    if is_tensor(seed):
        return _signed(seed), _signed(offset), 0, 0
    return None, None, _folded(seed), _folded(offset)


def _signed(x):
    """An int64 view of uint64."""
    return x.view(element(x, "i64")) if str(x.dtype).endswith("uint64") else x


def _folded(value):
    value = int(value) & (2**64 - 1)
    return value if value <= _EXACT else (value ^ value >> 53) & _EXACT


def _from_generator(x, increment, generator):
    """Seed and offset of a PyTorch generator, which is advanced."""
    if not hasattr(x, "new_empty"):
        raise ValueError("parbake: expected seed and offset: only PyTorch has a generator to take them from")
    import torch

    if generator is None:
        cuda = x.device.type == "cuda"
        generator = torch.cuda.default_generators[x.device.index] if cuda else torch.default_generator
    if generator.device.type != "cuda":
        return torch.randint(_EXACT, (2,), dtype=torch.int64, generator=generator).tolist()
    state = generator.get_state()
    words = state.view(torch.int64)
    words[1] += (increment + 3) // 4 * 4
    generator.set_state(state)
    return words.tolist()
