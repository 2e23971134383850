"""From a plan's digest to a loaded kernel: the table an op's ``plan`` argument is looked up in.

The compiler fills it (:func:`register_plan`), and each plan goes to the store together with its source. A process
that replays a compiled graph without the compiler finds both there (:func:`resolve`, :func:`kernel`).
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from attnc.codegen.paged_plan import PagedPlan
from attnc.codegen.plan import KernelPlan
from attnc.codegen.source import INCLUDE_DIR, Source, headers_digest
from attnc.runtime import config
from attnc.runtime.entry import BuildSpec, Entry
from attnc.runtime.errors import BuildError, PlanMissing, ToolchainMissing
from attnc.runtime.store import Store
from attnc.runtime.toolchain import Toolchain, cpu_id, find_toolchain
from attnc.runtime.triton_kernels import INTERPRETED


@dataclass(frozen=True)
class Kernel:
    """A loaded kernel. Addresses stay valid for the life of the process."""

    plan: KernelPlan
    path: Path
    """The library's entry folder in the store, with the source beside it."""
    run: int
    shape: int
    status: int
    library: ctypes.CDLL


_build_lock = threading.RLock()
_known: dict[int, tuple[KernelPlan, Source | None]] = {}
_kernels: dict[int, Kernel] = {}
_without_kernel: dict[int, str] = {}


def register_plan(plan: KernelPlan, source: Source | None, *, build: bool = True) -> int:
    """Make ``plan`` callable by its digest, which is returned, here and in later processes.

    ``source`` None means that the plan has no kernel: it runs on the ATen reference. With ``build`` the kernel is
    built (or found in the store) and loaded now. Raises BuildError when the compiler rejects the source; the plan is
    then not registered. Raises ValueError when ``source`` was written for another plan. Without any C++ compiler one
    RuntimeWarning is given and the plan runs on the ATen reference.
    """
    digest = plan.digest
    if source is not None and source.plan != digest:
        raise ValueError(f"registering plan {digest}: its source was written for plan {source.plan}; emit it again")
    earlier = _known.get(digest)
    if earlier is None or (source is not None and earlier[1] != source):
        _known[digest] = (plan, source)
        _without_kernel.pop(digest, None)
    try:
        if build:
            kernel(digest)
    except BuildError:
        if earlier is None:
            del _known[digest]
        else:
            _known[digest] = earlier
        raise
    _store().write_record("plans", str(digest), _record(plan, source))
    return digest


def adopt_plan(plan: KernelPlan, source: Source | None, library: Path | None = None) -> int:
    """Make ``plan`` callable by its digest in this process alone; nothing is recorded for later ones.

    ``library``: its kernel, built elsewhere, which is loaded where the plan has none yet. Without it the kernel is
    built from ``source`` when it is first asked for, and without either the plan runs on the ATen reference. Raises
    BuildError for a library that doesn't load or is of another plan, ValueError for a source of another plan.
    """
    digest = plan.digest
    if source is not None and source.plan != digest:
        raise ValueError(f"adopting plan {digest}: its source was written for plan {source.plan}")
    with _build_lock:
        if library is not None and digest not in _kernels:
            _kernels[digest] = _load(plan, library)
        if digest not in _known or (source is not None and _known[digest][1] is None):
            _known[digest] = (plan, source)
            _without_kernel.pop(digest, None)
    return digest


def without_kernel(digest: int) -> str | None:
    """Why a plan runs on torch operators; None where it doesn't, or nobody has asked for its kernel yet."""
    return _without_kernel.get(digest)


def has_kernels() -> bool:
    """Whether any kernel is loaded: then calls are worth making even where none can be built."""
    return bool(_kernels)


def resolve(digest: int) -> KernelPlan:
    """The plan with this digest, from this process or the store. Raises PlanMissing."""
    return _lookup(digest)[0]


def triton_source(digest: int) -> Source | None:
    """The emitted module of a plan whose kernel is in Triton; None for any other. Raises PlanMissing."""
    source = _lookup(digest)[1]
    return source if source is not None and source.language == "triton" else None


def runs_on_gpu(digest: int) -> bool:
    """Whether a plan's kernel is in Triton and for a GPU, not for the interpreter. Raises PlanMissing."""
    return triton_source(digest) is not None and resolve(digest).target != INTERPRETED


def kernel(digest: int) -> Kernel | None:
    """The loaded C++ kernel of a plan, built if need be; None where it is in Triton, or has to run on torch operators.

    Raises PlanMissing, and BuildError when the compiler rejects the source.
    """
    found = _kernels.get(digest)
    if found is not None or digest in _without_kernel:
        return found
    with _build_lock:
        if digest in _kernels:
            return _kernels[digest]
        plan, source = _lookup(digest)
        if source is None:
            _without_kernel[digest] = "the plan has no kernel source"
            return None
        if source.language == "triton":
            _without_kernel[digest] = "the plan's kernel is in Triton"
            return None
        try:
            entry = source_entry(plan, source)
        except ToolchainMissing as error:
            _without_kernel[digest] = str(error)
            warn_no_toolchain(str(error))
            return None
        _kernels[digest] = _load(plan, entry.library)
        return _kernels[digest]


def library_entry(spec_of: Callable[[Toolchain], BuildSpec], name: str) -> Entry:
    """The built entry of ``spec_of(toolchain)``; where no compiler is, the newest one of ``name`` for this CPU.

    Raises BuildError, and ToolchainMissing when there is neither a compiler nor an earlier build.
    """
    settings, store = config.current(), _store()
    try:
        toolchain = find_toolchain(settings.cxx)
    except ToolchainMissing:
        entry = store.recall(name, cpu_id())
        if entry is None:
            raise
        return entry
    entry = store.obtain(spec_of(toolchain), settings.build_timeout)
    store.remember(name, entry)
    return entry


def kernel_spec(plan: KernelPlan | PagedPlan, source: Source, toolchain: Toolchain) -> BuildSpec:
    """What building the kernel of ``plan`` with ``toolchain`` depends on."""
    return BuildSpec(
        kind="kernel",
        name=source.name,
        files={"plan.json": plan.to_json(), "kernel.cpp": source.text},
        source="kernel.cpp",
        library="kernel.so",
        flags=source.flags,
        toolchain=toolchain,
        includes=(INCLUDE_DIR,),
        depends={"headers": source.headers},
    )


def source_entry(plan: KernelPlan | PagedPlan, source: Source, op: str = "attention") -> Entry:
    """The built library of a plan's C++ source, for the op that calls it.

    Raises BuildError, ToolchainMissing, and PlanMissing where another version emitted the source and nothing is built.
    """
    name = f"plan-{plan.digest}-{source.digest[:16]}"
    if source.headers != headers_digest():  # emitted by another version: only what that version built can serve
        entry = _store().recall(name, cpu_id())
        if entry is None:
            raise PlanMissing(
                f"attnc::{op}, plan {plan.digest}: its source was emitted by another version of attnc and has no "
                f"build in the store. Compile the model again."
            )
        return entry
    return library_entry(lambda toolchain: kernel_spec(plan, source, toolchain), name)


def _load(plan: KernelPlan, path: Path) -> Kernel:
    try:
        library = ctypes.CDLL(str(path))
        run, shape, status = (_address(library, f"attnc_{name}") for name in ("run", "shape", "status"))
        library.attnc_plan_digest.restype = ctypes.c_uint64
        digest = library.attnc_plan_digest()
    except (OSError, AttributeError) as error:
        raise BuildError(f"loading the kernel {path}: {error}. Run `attnc cache clear`.") from error
    if digest != plan.digest:
        raise BuildError(f"loading the kernel {path}: it says it is of plan {digest}, not {plan.digest}.")
    return Kernel(plan, path.parent, run, shape, status, library)


def _address(library: ctypes.CDLL, name: str) -> int:
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None  # a symbol that dlsym found
    return address


def _lookup(digest: int) -> tuple[KernelPlan, Source | None]:
    found = _known.get(digest)
    if found is None:
        found = _read(digest)
        if found is None:
            raise PlanMissing(
                f"attnc::attention: plan {digest} is neither registered in this process nor in the store "
                f"{config.current().cache_dir}. The graph that calls it was compiled elsewhere, or the store was "
                f"cleared: compile the model again (and clear torch's own caches if it replays the old graph)."
            )
        found = _known.setdefault(digest, found)
    return found


def _read(digest: int) -> tuple[KernelPlan, Source | None] | None:
    record = _store().read_record("plans", str(digest))
    if record is None:
        return None
    try:
        plan = KernelPlan.from_json(record["plan"])
        fields = record["source"]
        source = None if fields is None else Source(**{**fields, "flags": tuple(fields["flags"])})
    except (ValueError, KeyError, TypeError):  # written by another version
        return None
    return (plan, source) if plan.digest == digest else None


def _record(plan: KernelPlan, source: Source | None) -> dict[str, object]:
    fields = None if source is None else {**dataclasses.asdict(source), "flags": list(source.flags)}
    return {"plan": plan.to_json(), "source": fields}


def _store() -> Store:
    return Store(config.current().cache_dir)


@functools.cache
def warn_no_toolchain(reason: str) -> None:
    """Say, once per process and reason, that torch operators do the work of kernels."""
    warnings.warn(
        f"attnc: no kernel can be built, attention runs on plain torch operators (right, but slower): {reason}",
        RuntimeWarning,
        stacklevel=2,
    )
