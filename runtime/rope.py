"""The custom op of rotary embeddings that have a kernel.

    attnc::rope(Tensor x, Tensor[] positions, Tensor[] inv_freqs, Tensor[] tables, int plan) -> Tensor

``plan`` is the digest of what :func:`register_rope` was given. The result has x's shape and is dense, in the dtype and
memory order of the plan. Operands may have any strides. Nothing is mutated, the result aliases no operand. There is no
autograd formula: a graph that is compiled for training rotates with torch operators.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnc.codegen.source import Source
from attnc.runtime import config
from attnc.runtime.abi import DTYPES
from attnc.runtime.dispatch import OpLibrary
from attnc.runtime.errors import PlanMissing
from attnc.runtime.store import Store
from attnc.runtime.triton_kernels import INTERPRETED, check_mode, module_of

SCHEMA = "rope(Tensor x, Tensor[] positions, Tensor[] inv_freqs, Tensor[] tables, int plan) -> Tensor"
Rotate = Callable[[Tensor, Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]], Tensor]


@dataclass(frozen=True)
class RopeKernel:
    """An emitted rotation, and what has to be known of its result before it runs."""

    source: Source
    target: str
    dtype: str
    order: tuple[int, ...]
    """The result's dimensions, the outermost in memory first."""


_known: dict[int, RopeKernel] = {}
_loaded: dict[int, Rotate] = {}


def register_rope(kernel: RopeKernel) -> int:
    """Make a rotation callable by its plan's digest, which is returned, here and in later processes."""
    digest = kernel.source.plan
    _known[digest] = kernel
    _loaded.pop(digest, None)
    _store().write_record("plans", str(digest), {"rope": dataclasses.asdict(kernel)})
    return digest


def resolve_rope(digest: int) -> RopeKernel:
    """The rotation with this digest, from this process or the store. Raises PlanMissing."""
    if digest not in _known:
        found = _read(digest)
        if found is None:
            raise PlanMissing(
                f"attnc::rope: plan {digest} is neither registered in this process nor in the store "
                f"{config.current().cache_dir}. The graph that calls it was compiled elsewhere, or the store was "
                f"cleared: compile the model again (and clear torch's own caches if it replays the old graph)."
            )
        _known[digest] = found
    return _known[digest]


def _read(digest: int) -> RopeKernel | None:
    record = _store().read_record("plans", str(digest))
    try:
        fields = record["rope"] if record is not None else None
        if fields is None:
            return None
        source = Source(**{**fields["source"], "flags": tuple(fields["source"]["flags"])})
        return RopeKernel(**{**fields, "source": source, "order": tuple(fields["order"])})
    except (KeyError, TypeError):  # written by another version
        return None


def _store() -> Store:
    return Store(config.current().cache_dir)


def _rotation(digest: int) -> Rotate:
    """The function that launches a plan's kernel. Raises PlanMissing and BuildError."""
    if digest not in _loaded:
        kernel = resolve_rope(digest)
        check_mode(kernel.target)
        rotate: Rotate = module_of(kernel.source).rotate
        _loaded[digest] = rotate
    return _loaded[digest]


def _rope(
    x: Tensor, positions: Sequence[Tensor], inv_freqs: Sequence[Tensor], tables: Sequence[Tensor], plan: int
) -> Tensor:
    target = resolve_rope(plan).target
    if x.device.type != ("cpu" if target == INTERPRETED else "cuda"):
        raise RuntimeError(
            f"attnc::rope, plan {plan}: x is on {x.device}, the plan was compiled for {target}. Move it, or compile "
            f"the model again with inputs on that device."
        )
    with torch.no_grad():
        return _rotation(plan)(x, positions, inv_freqs, tables)


def _fake_rope(
    x: Tensor, positions: Sequence[Tensor], inv_freqs: Sequence[Tensor], tables: Sequence[Tensor], plan: int
) -> Tensor:
    kernel = resolve_rope(plan)
    dense = x.new_empty([x.shape[dim] for dim in kernel.order], dtype=DTYPES[kernel.dtype])
    return dense.permute([kernel.order.index(dim) for dim in range(x.dim())])


def register(library: OpLibrary) -> None:
    """Define ``attnc::rope``."""
    library.define(SCHEMA)
    library.kernel("rope", _rope)
    library.fake("rope", _fake_rope)
