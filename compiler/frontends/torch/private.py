"""Every private or half-public torch API the product uses, in one place.

They exist under these names in torch 2.11 to 2.14; each has a test. Nothing here holds logic of ours beyond the
smallest adapter, so a torch release that moves one of them is a change to this file only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sympy
import torch
from torch._dynamo.exc import RestartAnalysis
from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.source import AttrSource
from torch._functorch.aot_autograd import aot_export_module
from torch._guards import CompileContext, TracingContext
from torch._higher_order_ops.wrap import tag_activation_checkpoint
from torch._inductor.compile_fx import compile_fx
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.fx.experimental import _config as size_settings
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv, statically_known_true
from torch.fx.node import has_side_effect
from torch.fx.traceback import annotate, preserve_node_meta
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass

__all__ = [
    "DATA_DEPENDENT",
    "FakeTensor",
    "FakeTensorMode",
    "RestartAnalysis",
    "ShapeEnv",
    "always",
    "annotated",
    "any_size",
    "aot_export",
    "check_equal",
    "compile_place",
    "dim_names",
    "enter_autocast",
    "exit_autocast",
    "export_any_size",
    "fake_mode_of",
    "greater",
    "guard_content",
    "has_side_effect",
    "hop_name",
    "inductor",
    "int_bounds",
    "is_functorch_call",
    "is_traceable_wrapper_subclass",
    "is_vmap_call",
    "levels_closed",
    "never",
    "placeholder_source",
    "preserve_version",
    "quiet_guards",
    "real_dtype_conversion",
    "real_numbers_allowed",
    "set_grad_enabled",
    "smaller",
    "symint_expr",
    "tag_activation_checkpoint",
    "untraced",
    "vmap_step",
]

enter_autocast: Callable[..., Any] = _enter_autocast
exit_autocast: Callable[..., Any] = _exit_autocast
set_grad_enabled: Callable[[bool], None] = torch._C._set_grad_enabled

FUNCTORCH_CALLS = (
    "_vmap_",
    "_grad_increment",
    "_grad_decrement",
    "_jvp_",
    "_add_batch_dim",
    "_remove_batch_dim",
    "_make_dual",
)

VMAP_CALLS = ("_vmap_", "_add_batch_dim", "_remove_batch_dim")


def aot_export(
    gm: torch.fx.GraphModule,
    args: Sequence[Any],
    decompositions: dict[Any, Callable[..., Any]] | None = None,
) -> tuple[torch.fx.GraphModule, Any]:
    """Functional ATen before dispatch, and torch's GraphSignature. Raises whatever tracing raises."""
    return aot_export_module(gm, list(args), trace_joint=False, pre_dispatch=True, decompositions=decompositions)  # type: ignore[return-value]


def symint_expr(value: torch.SymInt) -> sympy.Expr:
    """The symbolic value, known equalities applied (torch's own sympy functions inside)."""
    return sympy.sympify(value.node.expr)


def int_bounds(env: ShapeEnv, symbol: sympy.Symbol) -> tuple[int | None, int | None]:
    """Inclusive bounds torch knows for a symbol; None where there is none."""
    interval = env.var_to_range.get(symbol)
    if interval is None:
        return None, None
    return _finite(interval.lower), _finite(interval.upper)


def _finite(bound: Any) -> int | None:
    return int(bound) if isinstance(bound, sympy.Integer | int) and abs(int(bound)) < 2**62 else None


def dim_names(env: ShapeEnv) -> dict[str, str]:
    """Symbol name → the name of its ``torch.export.Dim``; symbols that equal another are left out."""
    names = {}
    for symbol, sources in getattr(env, "var_to_sources", {}).items():
        if symbol in env.replacements:
            continue
        for source in sources:
            label = getattr(source, "name", "")
            debug = env.source_name_to_debug_name.get(label() if callable(label) else label)
            if debug is not None:
                names[str(symbol)] = debug
    return names


def fake_mode_of(values: Any) -> FakeTensorMode | None:
    """The fake mode of the first fake tensor in a nested argument, or None."""
    for leaf in torch.utils._pytree.tree_leaves(values):
        if isinstance(leaf, FakeTensor):
            return leaf.fake_mode
    return None


@contextmanager
def quiet_guards(mode: FakeTensorMode) -> Iterator[None]:
    """Run on fake tensors without adding guards: what is run is traced again by the host, which adds its own."""
    env = mode.shape_env
    if env is None:
        yield
    else:
        with env.suppress_guards(), env.ignore_fresh_unbacked_symbols():
            yield


def placeholder_source(node: torch.fx.Node) -> str:
    """Where Dynamo read a placeholder from, such as ``L['self']._buffers['mask']``; empty when unknown."""
    source = getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", "")
    return str(name() if callable(name) else name)


def guard_content(node: torch.fx.Node) -> bool:
    """Make Dynamo compile again when the tensor of a placeholder is replaced or written; False where it can't."""
    source = getattr(node.meta.get("grapharg"), "source", None)
    if source is None or TracingContext.try_get() is None:
        return False
    version = AttrSource(source, "_version")
    install_guard(source.make_guard(GuardBuilder.ID_MATCH), version.make_guard(GuardBuilder.EQUALS_MATCH))
    return True


def compile_place() -> tuple[int, int] | None:
    """The frame Dynamo is compiling and how often it has been compiled before; None outside of a compile."""
    current = CompileContext.current_compile_id()
    if current is None or current.frame_id is None or current.frame_compile_id is None:
        return None
    return current.frame_id, current.frame_compile_id


def hop_name(target: HigherOrderOperator) -> str:
    """The name of a higher-order op, such as ``cond``."""
    return str(target.name())  # type: ignore[no-untyped-call]


def inductor(gm: torch.fx.GraphModule, args: Sequence[Any]) -> Callable[..., Any]:
    """Inductor's callable of a graph: AOTAutograd and all. Raises whatever compiling raises."""
    compiled = compile_fx(gm, list(args))
    assert callable(compiled)
    return compiled


def preserve_version(tensor: torch.Tensor) -> Any:
    """A context in which writes to ``tensor`` leave its version counter as it was."""
    return _unsafe_preserve_version_counter(tensor)


def is_functorch_call(target: Any) -> bool:
    """True for the calls vmap, grad and jvp leave in a Dynamo graph."""
    return "functorch" in (getattr(target, "__module__", "") or "") and target.__name__.startswith(FUNCTORCH_CALLS)


def is_vmap_call(target: Any) -> bool:
    """True for vmap's own among them."""
    return is_functorch_call(target) and target.__name__.startswith(VMAP_CALLS)


def vmap_step(target: Any) -> int:
    """1 for the call that opens a level of vmap, −1 for the one that closes it, else 0."""
    if not is_vmap_call(target):
        return 0
    return {"_vmap_increment_nesting": 1, "_vmap_decrement_nesting": -1}.get(target.__name__, 0)


@contextmanager
def levels_closed() -> Iterator[None]:
    """Close the levels of torch.func transforms that an error leaves open."""
    depth = torch._C._functorch.get_dynamic_layer_stack_depth()
    try:
        yield
    finally:
        torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)


@contextmanager
def real_numbers_allowed(values: Any) -> Iterator[None]:
    """Let fake tensors meet the real ones that batching makes of Python numbers."""
    mode = fake_mode_of(values)
    if mode is None:
        yield
        return
    before, mode.allow_non_fake_inputs = mode.allow_non_fake_inputs, True
    try:
        yield
    finally:
        mode.allow_non_fake_inputs = before


def real_dtype_conversion() -> Any:
    """The op autocast inserts for each argument it converts."""
    return torch.ops.aten._to_copy.default


DATA_DEPENDENT: type[Exception] = GuardOnDataDependentSymNode
"""Raised where tracing would have to know a number that is data."""


def annotated(marks: dict[str, Any]) -> Any:
    """A context in which traced nodes carry ``marks`` in ``meta["custom"]``."""
    return annotate(marks)


def greater(a: int, b: int) -> int:
    """The greater of two sizes."""
    found: int = torch.sym_max(a, b)  # type: ignore[no-untyped-call]
    return found


def smaller(a: int, b: int) -> int:
    """The smaller of two sizes."""
    found: int = torch.sym_min(a, b)  # type: ignore[no-untyped-call]
    return found


def check_equal(a: int, b: int) -> None:
    """Tell the tracer that two sizes are the same."""
    torch._check(a == b)  # type: ignore[no-untyped-call]


def always(condition: bool | torch.SymBool) -> bool:
    """Whether a condition on sizes holds for all of them, without a guard."""
    return bool(statically_known_true(condition))


def never(condition: bool | torch.SymBool) -> bool:
    """Whether a condition on sizes holds for none of them, without a guard."""
    return bool(statically_known_true(torch.sym_not(condition)))  # type: ignore[no-untyped-call]


@contextmanager
def untraced() -> Iterator[None]:
    """Compute at once, whatever modes are tracing around."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


def any_size() -> Any:
    """A context that traces without the assumption that a symbolic size is neither 0 nor 1."""
    return size_settings.patch(backed_size_oblivious=True)  # type: ignore[attr-defined]


def export_any_size(
    module: torch.nn.Module, inputs: Mapping[str, Any], shapes: Mapping[str, Any]
) -> torch.export.ExportedProgram:
    """``torch.export`` under :func:`any_size`; nodes keep their marks.

    Broadcasting still takes a symbolic size for one that isn't 1, as the size's name says.
    """
    with any_size(), preserve_node_meta(), torch.no_grad():
        return torch.export.export(module, (), dict(inputs), dynamic_shapes=dict(shapes), strict=False)
