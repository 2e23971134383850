"""The custom ops of paged attention. Importing this module registers them; nothing is built before the first call.

    attnc::kv_write(Tensor x, Tensor(a!) pages, Tensor(b!)? scale, Tensor slots) -> ()

x ``[T, heads, d]``, of any strides, goes to ``slots`` i64[T] (page · page_size + offset, each once) of ``pages``
``[num_pages, heads, page_size, …]``, quantised as their dtype says (:mod:`attnc.runtime.kv.quantise`).

    attnc::paged_attention(Tensor q, Tensor k_pages, Tensor v_pages, Tensor? k_scale, Tensor? v_scale,
                           Tensor block_table, Tensor query_start, Tensor context_len, Tensor?[] side, int plan,
                           SymInt[] sizes) -> Tensor

q: dimensions ``plan.attention.q_axes``, the batch axis of length 1, the query axis of length T, any strides. Result:
``out_axes`` likewise, contiguous. ``block_table`` i32[N, P], ``query_start`` i32[N + 1] from 0 to T, ``context_len``
i32[N]; ``plan`` is the digest of a :class:`~attnc.codegen.paged_plan.PagedPlan`. Entries of the table that no visible
key lies in, and slots beyond a request's keys, are never used. No result aliases an operand; there is no gradient.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from attnc.codegen.paged_plan import PagedPlan
from attnc.codegen.source import Source, kv_write_source
from attnc.runtime import config, kernels, paged_reference
from attnc.runtime.abi import DTYPES
from attnc.runtime.dispatch import OpLibrary
from attnc.runtime.errors import PlanMissing, ToolchainMissing
from attnc.runtime.kv.quantise import STORE_OF, row_shape, scale_shape
from attnc.runtime.kv.storage import write_rows
from attnc.runtime.paged_kernel import PagedKernel, load
from attnc.runtime.program import SizeArg
from attnc.runtime.store import Store
from attnc.runtime.triton_kernels import INTERPRETED, check_mode, module_of

WRITE = "kv_write(Tensor x, Tensor(a!) pages, Tensor(b!)? scale, Tensor slots) -> ()"
ATTENTION = (
    "paged_attention(Tensor q, Tensor k_pages, Tensor v_pages, Tensor? k_scale, Tensor? v_scale, Tensor block_table, "
    "Tensor query_start, Tensor context_len, Tensor?[] side, int plan, SymInt[] sizes) -> Tensor"
)

_known: dict[int, tuple[PagedPlan, Source | None]] = {}
_kernels: dict[int, PagedKernel | None] = {}


def register_paged(plan: PagedPlan, source: Source | None, *, build: bool = True) -> int:
    """Make ``plan`` callable by its digest, which is returned, here and in later processes.

    ``source`` None: it runs on torch operators. With ``build`` the kernel is built (or found in the store) and loaded
    now. Raises ValueError when ``source`` was written for another plan, BuildError when the compiler rejects it; the
    plan is then not registered.
    """
    digest = plan.digest
    if source is not None and source.plan != digest:
        raise ValueError(f"registering paged plan {digest}: its source is of plan {source.plan}; emit it again")
    if source is not None and source.language == "c++" and build:
        _kernels[digest] = _built(plan, source)
    elif _known.get(digest, (plan, None))[1] != source:
        _kernels.pop(digest, None)
    _known[digest] = (plan, source)
    fields = None if source is None else dataclasses.asdict(source)
    _store().write_record("plans", str(digest), {"paged": {"plan": plan.to_json(), "source": fields}})
    return digest


def resolve_paged(digest: int) -> PagedPlan:
    """The plan with this digest, from this process or the store. Raises PlanMissing."""
    return _lookup(digest)[0]


def paged_kernel(digest: int) -> PagedKernel | None:
    """The loaded C++ kernel of a plan, built if need be; None where it is in Triton, or has to run on torch operators.

    Raises PlanMissing, and BuildError when the compiler rejects the source.
    """
    if digest not in _kernels:
        plan, source = _lookup(digest)
        _kernels[digest] = _built(plan, source) if source is not None and source.language == "c++" else None
    return _kernels[digest]


def _built(plan: PagedPlan, source: Source) -> PagedKernel | None:
    try:
        return load(plan, kernels.source_entry(plan, source, "paged_attention"))
    except ToolchainMissing as error:
        kernels.warn_no_toolchain(str(error))
        return None


def _lookup(digest: int) -> tuple[PagedPlan, Source | None]:
    if digest not in _known:
        found = _read(digest)
        if found is None:
            raise PlanMissing(
                f"attnc::paged_attention: plan {digest} is neither registered in this process nor in the store "
                f"{config.current().cache_dir}. The program that calls it was made elsewhere, or the store was "
                f"cleared: compile the model again."
            )
        _known[digest] = found
    return _known[digest]


def _read(digest: int) -> tuple[PagedPlan, Source | None] | None:
    record = _store().read_record("plans", str(digest))
    try:
        found = record["paged"] if record is not None else None
        if found is None:
            return None
        plan, fields = PagedPlan.from_json(found["plan"]), found["source"]
        source = None if fields is None else Source(**{**fields, "flags": tuple(fields["flags"])})
    except (KeyError, TypeError, ValueError):  # written by another version
        return None
    return (plan, source) if plan.digest == digest else None


def _store() -> Store:
    return Store(config.current().cache_dir)


# -- the ops


def _kv_write(x: Tensor, pages: Tensor, scale: Tensor | None, slots: Tensor) -> None:
    store = STORE_OF.get(pages.dtype)
    if store is None:
        raise ValueError(f"attnc::kv_write: pages of {pages.dtype}; pages are {', '.join(map(str, STORE_OF))}")
    if (scale_shape(store, x.shape[-1]) is None) != (scale is None):
        raise ValueError(f"attnc::kv_write: pages of {store} with{'out' if scale is None else ''} scales")
    if (x.shape[1], *row_shape(store, x.shape[-1])) != (pages.shape[1], pages.shape[3]):
        raise ValueError(f"attnc::kv_write: x {tuple(x.shape)} does not fit {store} pages {tuple(pages.shape)}")
    if pages.device.type == "cuda":
        module_of(kv_write_source()).write(x, pages, scale, slots)
    else:
        write_rows(x, pages, scale, slots)


def _paged_attention(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    k_scale: Tensor | None,
    v_scale: Tensor | None,
    block_table: Tensor,
    query_start: Tensor,
    context_len: Tensor,
    side: Sequence[Tensor | None],
    plan: int,
    sizes: Sequence[int],
) -> Tensor:
    decided = resolve_paged(plan)
    given = [tensor for tensor in side if tensor is not None]
    launch = _launch(plan, q)
    if launch is not None:
        return launch(q, k_pages, v_pages, k_scale, v_scale, block_table, query_start, context_len, given, sizes)
    kernel = paged_kernel(plan) if q.device.type == "cpu" and config.current().route != "aten" else None
    if kernel is not None:
        out = q.new_empty(paged_reference.result_shape(decided, q, v_pages), dtype=DTYPES[decided.attention.dtypes[3]])
        tensors = (q, k_pages, v_pages, k_scale, v_scale, block_table, query_start, context_len, out, *given)
        kernel(tensors, sizes)
        return out
    paged_reference.check(decided, q, (k_pages, v_pages), (k_scale, v_scale), given, sizes)
    with torch.no_grad():
        return paged_reference.paged_attention(
            decided, q, (k_pages, v_pages), (k_scale, v_scale), block_table, query_start, context_len, given, sizes
        )


def _launch(digest: int, q: Tensor) -> Callable[..., Tensor] | None:
    """What launches a plan's Triton kernel; None where it has none.

    Raises RuntimeError where q is on another device than the plan is for, BuildError as ``check_mode`` does.
    """
    plan, source = _lookup(digest)
    if source is None or source.language != "triton":
        return None
    target = plan.attention.target
    if q.device.type != ("cpu" if target == INTERPRETED else "cuda"):
        raise RuntimeError(
            f"attnc::paged_attention, plan {digest}: q is on {q.device}, the plan was compiled for {target}. Move it, "
            f"or compile the model again with inputs on that device."
        )
    check_mode(target)
    attention: Callable[..., Tensor] = module_of(source).attention
    return attention


def _fake_kv_write(x: Tensor, pages: Tensor, scale: Tensor | None, slots: Tensor) -> None:
    """Nothing comes back."""


def _fake_paged_attention(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    k_scale: Tensor | None,
    v_scale: Tensor | None,
    block_table: Tensor,
    query_start: Tensor,
    context_len: Tensor,
    side: Sequence[Tensor | None],
    plan: int,
    sizes: Sequence[SizeArg],
) -> Tensor:
    decided = resolve_paged(plan)
    shape = paged_reference.result_shape(decided, q, v_pages)
    return q.new_empty(shape, dtype=DTYPES[decided.attention.dtypes[3]])


_library = OpLibrary("FRAGMENT")
_library.define(WRITE)
_library.kernel("kv_write", _kv_write)
_library.fake("kv_write", _fake_kv_write)
_library.define(ATTENTION)
_library.kernel("paged_attention", _paged_attention)
_library.fake("paged_attention", _fake_paged_attention)

kv_write = torch.ops.attnc.kv_write.default
paged_attention = torch.ops.attnc.paged_attention.default
