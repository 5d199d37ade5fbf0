"""Collectives of the GPUs of one host over their own memory, for PyTorch: all-reduce, all-gather, reduce-scatter, and the
all-reduce with residual and RMSNorm in one launch.

Each rank has a pool that the others reach; a `Workspace` is the pools of a group as one rank sees them. Nothing waits for
the host, and nothing of a call is kept there: calls can be captured into a CUDA graph and replayed, by all ranks alike. Sums
are taken in f32 and in the order of ranks, so that all ranks get the same bits. For groups over several hosts there is NCCL.
"""

from __future__ import annotations

from typing import Any

import torch

from parbake import _pool
from parbake._attention.wrong import dtype as element
from parbake._attention.wrong import refuse, refuse_given
from parbake.collective import all_gather as _all_gather
from parbake.collective import all_reduce as _all_reduce
from parbake.collective import all_reduce_rmsnorm
from parbake.collective import reduce_scatter as _reduce_scatter

__all__ = [
    "AllReduceFusionPattern", "Pool", "Workspace", "all_gather", "all_reduce", "allreduce_fusion", "create_workspace",
    "reduce_scatter",
]  # fmt: skip

_NCCL = "for several hosts, or GPUs without peer access, torch.distributed with NCCL is the way"


class AllReduceFusionPattern:
    """What `allreduce_fusion` does beside the sum; names and numbers are FlashInfer's."""

    kAllReduce = 0
    kARResidualRMSNorm = 1
    kARResidualRMSNormFP8Quant = 2
    kARResidualRMSNormOutFP8Quant = 4


class Pool:
    """Memory of one rank that the others of its group will reach.

    Args:
        max_token_num: The most rows of a call.
        hidden_dim: The most elements of a row.
        dtype: Their type.
        world_size: Ranks of the group, 1 to 8.
        device: A GPU; without one the current one. "cpu": for ranks that are threads of this process, for tests.

    Raises:
        ValueError: Ranks or sizes that no pool is for.
        parbake.Error: No such GPU, or no room.
    """

    def __init__(self, max_token_num: int, hidden_dim: int, dtype: Any, world_size: int, device: Any = None):
        where = "comm.Pool"
        kind = element(where, "dtype", dtype)
        if kind is None:
            refuse(TypeError, where, "dtype", "an element type", "None")
        if not 1 <= world_size <= _pool.MAX_RANKS:
            refuse(ValueError, where, "world_size", f"1 to {_pool.MAX_RANKS}", world_size, _NCCL)
        if max_token_num < 1 or hidden_dim < 1:
            refuse(ValueError, where, "max_token_num, hidden_dim", "at least 1", f"{max_token_num}, {hidden_dim}")
        found = torch.device("cuda" if device is None else device)
        if found.type == "cuda" and found.index is None:
            found = torch.device("cuda", torch.cuda.current_device())
        if found.type not in ("cuda", "cpu"):
            refuse(ValueError, where, "device", "a CUDA device or the CPU", found)
        self.device, self.world_size = found, world_size
        row = -(-hidden_dim * kind.itemsize // 16) * 16
        size = _pool.pool_bytes(max_token_num, row, world_size)
        if found.type == "cuda":
            torch.cuda.init()
        self._pool = _pool.Pool(found.index if found.type == "cuda" else -1, size)

    @property
    def handle(self) -> bytes:
        """What the other ranks open this pool by."""
        return self._pool.handle()

    def open(self, rank: int, handles: list[bytes], timeout_ms: int = 30000) -> Workspace:
        """The workspace of this rank, from the handles of all ranks in their order.

        Args:
            rank: This rank.
            handles: Of all ranks; this one's is among them.
            timeout_ms: Milliseconds that a call waits for the others before it gives up, which ends the launch, and every later one of
                this process on that GPU, with an error. 0: for ever.

        Raises:
            ValueError: The handles do not go together.
            parbake.Error: A rank is out of reach.
        """
        if len(handles) != self.world_size or any(len(h) != _pool.HANDLE_BYTES for h in handles):
            expected = f"{self.world_size} handles of {_pool.HANDLE_BYTES} bytes"
            refuse(ValueError, "comm.Pool.open", "handles", expected, [len(h) for h in handles])
        return Workspace(self, rank, self._pool.open(rank, handles), timeout_ms)


class _Memory:
    """Memory as PyTorch takes it; the tensor keeps this object, and this object the pool."""

    def __init__(self, pool: _pool.Pool):
        self._pool = pool
        self.__cuda_array_interface__ = {
            "shape": (pool.size // 4,), "typestr": "<i4", "data": (pool.address, False), "version": 2,
        }  # fmt: skip


def _tensor(pool: _pool.Pool, device: torch.device) -> torch.Tensor:
    """The words of a pool."""
    if device.type == "cuda":
        return torch.as_tensor(_Memory(pool), device=device)
    import ctypes

    memory = (ctypes.c_int32 * (pool.size // 4)).from_address(pool.address)
    memory.pool = pool  # type: ignore[attr-defined]
    return torch.frombuffer(memory, dtype=torch.int32)


class Workspace:
    """The pools of a group, as one rank sees them.

    Calls on one workspace are in the order of one stream, and all ranks make the same calls in the same order. It must outlive
    the work of all ranks: after a barrier, `destroy` it or let it go.
    """

    def __init__(self, pool: Pool, rank: int, addresses: list[int], timeout_ms: int):
        self.rank, self.world_size, self.device = rank, pool.world_size, pool.device
        self.timeout_ms = timeout_ms
        self._pool = pool._pool
        self.pool: torch.Tensor | None = _tensor(pool._pool, pool.device)
        self.pools = torch.tensor(addresses, dtype=torch.int64, device=pool.device)

    def destroy(self) -> None:
        """Frees this rank's pool and closes the others'. The work of all ranks with them is done."""
        if self.pool is not None:
            self.pool = None
            self._pool.free()

    def _common(self, where: str) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
        if self.pool is None:
            refuse(ValueError, where, "workspace", "one that is not destroyed", "a destroyed one")
        target = "host" if self.device.type == "cpu" else None
        return self.pool, self.pools, {"rank": self.rank, "timeout_ms": self.timeout_ms, "target": target}


def create_workspace(
    max_token_num: int, hidden_dim: int, dtype: Any, group: Any = None, device: Any = None, timeout_ms: int = 30000
) -> Workspace:
    """The workspace of a group of `torch.distributed`. All of its ranks call this, and all fail if one does.

    Args:
        max_token_num: The most rows of a call, the same on all ranks.
        hidden_dim: The most elements of a row.
        dtype: Their type.
        group: A process group, of any backend that gathers objects; without one, all processes.
        device: A GPU; without one, the current one.
        timeout_ms: As of `Pool.open`.

    Raises:
        ValueError: More than 8 ranks, or sizes that differ.
        parbake.Error: A rank failed: no room, or GPUs that do not reach each other. The text says which and why.

    Example:
        >>> workspace = parbake.comm.create_workspace(2048, 8192, torch.bfloat16, group=tensor_parallel)
        >>> parbake.comm.all_reduce(x, workspace, out=x)
    """
    import torch.distributed as dist

    from parbake._error import Error

    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        refuse(ValueError, "comm.create_workspace", "group", "a group that this process belongs to", "another")
    if world_size > _pool.MAX_RANKS:
        refuse(ValueError, "comm.create_workspace", "group", f"at most {_pool.MAX_RANKS} ranks", world_size, _NCCL)

    def together(what: str, work: Any) -> list[Any]:
        """What each rank made; nobody goes on where one failed, or it would wait for that one."""
        try:
            mine, failure = work(), None
        except Exception as error:  # noqa: BLE001 - it is told to all
            mine, failure = None, error
        told: list[Any] = [None] * world_size
        dist.all_gather_object(told, (mine, None if failure is None else str(failure)), group=group)
        if failure is not None:
            raise failure
        for other, (_, said) in enumerate(told):
            if said is not None:
                raise Error(f"parbake.comm.create_workspace: rank {other} could not {what}\n  got: {said}")
        return [made for made, _ in told]

    pools: list[Pool] = []

    def make() -> bytes:
        pools.append(Pool(max_token_num, hidden_dim, dtype, world_size, device))
        return pools[0].handle

    handles = together("make its pool", make)
    workspaces: list[Workspace] = []
    together("open the pools of the others", lambda: workspaces.append(pools[0].open(rank, handles, timeout_ms)))
    return workspaces[0]


def _given(where: str, workspace: Any) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    if not isinstance(workspace, Workspace):
        refuse(TypeError, where, "workspace", "one of create_workspace, of the group that calls", type(workspace).__name__, _NCCL)
    return workspace._common(where)


def _flat(where: str, argument: str, tensor: Any) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor):
        refuse(TypeError, where, argument, "a tensor", type(tensor).__name__)
    if not tensor.is_contiguous():
        refuse(ValueError, where, argument, "a contiguous tensor", f"strides {tensor.stride()}")
    return tensor.view(-1)


def all_reduce(input: torch.Tensor, workspace: Workspace, out: torch.Tensor | None = None) -> torch.Tensor:
    """The sum over ranks, in f32 and in their order, rounded once: all ranks get the same bits.

    Args:
        input: What this rank adds, f16, bf16 or f32, contiguous; whole multiples of 16 bytes, at a multiple of 16.
        workspace: That of the group.
        out: As input, and may be input itself. Allocated if it is not given.

    Returns:
        `out`.

    Raises:
        TypeError: No workspace, or an element type that there is no sum of.
        ValueError: A shape, a device, or a pool that is too small.

    Example:
        >>> parbake.comm.all_reduce(x, workspace, out=x)
    """
    where = "comm.all_reduce"
    pool, pools, common = _given(where, workspace)
    flat = _flat(where, "input", input)
    out = torch.empty_like(input) if out is None else out
    _all_reduce(pool, flat, pools, out=_flat(where, "out", out), **common)
    return out


def all_gather(input: torch.Tensor, workspace: Workspace, out: torch.Tensor | None = None) -> torch.Tensor:
    """What all ranks have, one after the other.

    Args:
        input: What this rank has, contiguous; whole multiples of 16 bytes, at a multiple of 16.
        workspace: That of the group.
        out: [ranks, *input.shape], contiguous. Allocated if it is not given.

    Returns:
        `out`.
    """
    where = "comm.all_gather"
    pool, pools, common = _given(where, workspace)
    flat, ranks = _flat(where, "input", input), workspace.world_size
    out = input.new_empty((ranks, *input.shape)) if out is None else out
    if _flat(where, "out", out).numel() != ranks * flat.numel():
        refuse(ValueError, where, "out", f"[{ranks}, *input.shape]", tuple(out.shape))
    _all_gather(pool, flat, pools, out=out.view(ranks, -1) if flat.numel() else out.view(ranks, 0), **common)
    return out


def reduce_scatter(input: torch.Tensor, workspace: Workspace, out: torch.Tensor | None = None) -> torch.Tensor:
    """This rank's part of the sum over ranks, in f32 and in their order.

    Args:
        input: [ranks, ...]: what this rank adds to the sum of each rank, f16, bf16 or f32, contiguous; rows of whole multiples of
            16 bytes.
        workspace: That of the group.
        out: As a row of input. Allocated if it is not given.

    Returns:
        `out`.
    """
    where = "comm.reduce_scatter"
    pool, pools, common = _given(where, workspace)
    flat, ranks = _flat(where, "input", input), workspace.world_size
    if input.dim() == 0 or input.shape[0] != ranks:
        refuse(ValueError, where, "input", f"[{ranks}, ...], a row for each rank", tuple(input.shape))
    out = input.new_empty(input.shape[1:]) if out is None else out
    rows = flat.view(ranks, flat.numel() // ranks)
    _reduce_scatter(pool, rows, pools, out=_flat(where, "out", out), **common)
    return out


def allreduce_fusion(
    input: torch.Tensor,
    workspace: Workspace,
    pattern: int,
    launch_with_pdl: bool = False,
    trigger_completion_at_end: bool = True,
    output: torch.Tensor | None = None,
    residual_out: torch.Tensor | None = None,
    norm_out: torch.Tensor | None = None,
    quant_out: torch.Tensor | None = None,
    scale_out: torch.Tensor | None = None,
    residual_in: torch.Tensor | None = None,
    rms_gamma: torch.Tensor | None = None,
    rms_eps: float = 1e-6,
    scale_factor: torch.Tensor | float | None = None,
    layout_code: int | None = None,
    use_oneshot: bool | None = None,
    fp32_acc: bool = False,
    *,
    weight_bias: float = 0.0,
) -> torch.Tensor:
    """The sum over ranks, and what a model does with it, in one launch. Takes arguments of FlashInfer's function of that name.

    The residual is added to the f32 sum, and the norm is of that sum, before either is rounded.

    Args:
        input: What this rank adds, f16, bf16 or f32 [tokens, hidden], rows at multiples of 16 bytes.
        workspace: That of the group.
        pattern: Of `AllReduceFusionPattern`: kAllReduce; kARResidualRMSNorm; kARResidualRMSNormFP8Quant, whose one result has
            8 bits; kARResidualRMSNormOutFP8Quant, which has norm_out beside it.
        launch_with_pdl: Accepted and ignored: launches are not chained to the kernel before.
        trigger_completion_at_end: Accepted and ignored, as that.
        output: For kAllReduce, as input. Allocated if it is not given, as all results are.
        residual_out: The sum with the residual, as input; may be residual_in.
        norm_out: As input; may be input.
        quant_out: e4m3, as input.
        residual_in: Added to the sum, as input.
        rms_gamma: A factor for each column, [hidden], of the type of input.
        rms_eps: Added to the mean square.
        scale_factor: What quant_out is to be multiplied by: a number, or an f32 tensor with one element. 1 if it is not given.
        use_oneshot: Accepted and ignored: size and ranks decide, on all ranks alike; PARBAKE_TACTICS forces either.
        fp32_acc: Accepted and ignored: sums are f32 always.
        weight_bias: Added to each weight: 1 for weights stored as their difference from one.

    Returns:
        `output`, `norm_out` or, where there is one, `quant_out`.

    Raises:
        TypeError: An argument is missing, or of another type.
        ValueError: A shape, a stride, a device, or a pool that is too small.
        NotImplementedError: A pattern or an argument that nothing here does.

    Example:
        >>> fused = parbake.comm.AllReduceFusionPattern.kARResidualRMSNorm
        >>> y = parbake.comm.allreduce_fusion(x, workspace, fused, residual_in=r, residual_out=r, rms_gamma=w)
    """
    where = "comm.allreduce_fusion"
    pool, pools, common = _given(where, workspace)
    refuse_given(where, scale_out=scale_out, layout_code=layout_code)
    known = AllReduceFusionPattern
    if pattern == known.kAllReduce:
        return all_reduce(input, workspace, output)
    if pattern not in (known.kARResidualRMSNorm, known.kARResidualRMSNormFP8Quant, known.kARResidualRMSNormOutFP8Quant):
        refuse(NotImplementedError, where, "pattern", "0, 1, 2 or 4, as AllReduceFusionPattern has them", pattern)
    for name, value in (("residual_in", residual_in), ("rms_gamma", rms_gamma)):
        if not isinstance(value, torch.Tensor):
            refuse(TypeError, where, name, f"a tensor for pattern {pattern}", type(value).__name__)
    quantised = pattern != known.kARResidualRMSNorm
    if not quantised:
        refuse_given(where, quant_out=quant_out, scale_factor=scale_factor)
    if pattern != known.kARResidualRMSNormFP8Quant:
        norm_out = torch.empty_like(input) if norm_out is None else norm_out
    if quantised and quant_out is None:
        quant_out = torch.empty(input.shape, dtype=torch.float8_e4m3fn, device=input.device)
    residual_out = torch.empty_like(input) if residual_out is None else residual_out
    scale, value = None, 1.0
    if isinstance(scale_factor, torch.Tensor):
        scale = scale_factor.reshape(1)
    elif scale_factor is not None:
        value = scale_factor
    all_reduce_rmsnorm(
        pool, input, residual_in, rms_gamma, pools, scale=scale, eps=rms_eps, weight_bias=weight_bias, scale_value=value,
        residual_out=residual_out, out=norm_out, quant=quant_out, **common,
    )  # fmt: skip
    return quant_out if quantised else norm_out  # type: ignore[return-value]
