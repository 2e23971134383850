"""Autocast regions: entered while tracing, then written into the graph as casts.

Export records ``_enter_autocast`` and ``_exit_autocast`` without obeying them, so every dtype in between comes out
wrong. :func:`real_autocast` makes them act. Afterwards :func:`explicit_casts` asks each op of a region, on its example
inputs, what autocast does to it; where that is a conversion of its inputs, the conversion becomes a node and the region
goes. An op that converts inside (its trace differs) keeps a region of its own.

The result means the same whatever the caller's autocast state, so the host runs it with autocast off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attnc.compiler.frontends.torch import private
from attnc.compiler.host.metadata import carried

TO_COPY = private.real_dtype_conversion()
CONVERSIONS = frozenset(
    (TO_COPY, torch.ops.aten.to.dtype, torch.ops.aten.to.dtype_layout, torch.ops.aten.type_as.default)
)

Setting = tuple[str, torch.dtype, bool, bool]
"""(device type, dtype, enabled, cache enabled): the arguments of ``_enter_autocast``."""

_entered: list[Any] = []


def enter_for_real(*setting: Any) -> Any:
    """``_enter_autocast`` that also acts while tracing (entering records the same node)."""
    mode = torch.autocast(*setting)
    mode.__enter__()  # type: ignore[no-untyped-call]
    _entered.append(mode)
    return mode


def exit_for_real(mode: Any) -> None:
    """``_exit_autocast`` that also acts while tracing."""
    mode.__exit__(None, None, None)
    _entered.remove(mode)


# Without it FX's dead-code elimination would drop the calls: nothing reads their results.
private.has_side_effect(enter_for_real)
private.has_side_effect(exit_for_real)


def real_autocast(gm: torch.fx.GraphModule) -> int:
    """Make the autocast regions of a Dynamo graph act while it is traced, in place; returns how many."""
    swap = {private.enter_autocast: enter_for_real, private.exit_autocast: exit_for_real}
    count = 0
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target in swap:
            node.target = swap[node.target]
            count += node.target is enter_for_real
    if count:
        gm.recompile()
    return count


@contextmanager
def modes_restored() -> Iterator[None]:
    """Leave autocast and grad mode as they were, also when tracing stops inside a region."""
    grad, depth = torch.is_grad_enabled(), len(_entered)
    try:
        yield
    finally:
        for mode in reversed(_entered[depth:]):
            mode.__exit__(None, None, None)
        del _entered[depth:]
        private.set_grad_enabled(grad)


def ambient_autocast() -> tuple[Setting, ...]:
    """The autocast settings in force outside the graph."""
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    return tuple(
        (device, torch.get_autocast_dtype(device), True, torch.is_autocast_cache_enabled())
        for device in devices
        if torch.is_autocast_enabled(device)
    )


def autocast_off(function: Callable[..., Any], settings: tuple[Setting, ...]) -> Callable[..., Any]:
    """``function`` run with autocast off on the devices of ``settings``."""
    if not settings:
        return function

    def run(*args: Any) -> Any:
        with ExitStack() as stack:
            for device, *_ in settings:
                stack.enter_context(torch.autocast(device, enabled=False))
            return function(*args)

    return run


def explicit_casts(gm: torch.fx.GraphModule, ambient: tuple[Setting, ...] = ()) -> int:
    """Replace autocast (the graph's regions and the ambient one) by conversions, in place; returns how many it made.

    Needs example values (``meta["val"]``) on every node.
    """
    if not ambient and not gm.graph.find_nodes(op="call_function", target=private.enter_autocast):
        return 0
    pass_ = _Casts(gm.graph, list(ambient))
    for node in list(gm.graph.nodes):
        pass_.visit(node)
    for node in pass_.entries:
        gm.graph.erase_node(node)
    gm.recompile()
    return pass_.count


@dataclass
class _Casts:
    graph: torch.fx.Graph
    stack: list[Setting]
    entries: list[torch.fx.Node] = field(default_factory=list)
    made: dict[tuple[torch.fx.Node, torch.dtype], torch.fx.Node] = field(default_factory=dict)
    count: int = 0

    def visit(self, node: torch.fx.Node) -> None:
        if node.target is private.set_grad_enabled:
            self.made.clear()  # a cast made without gradients must not serve a use that needs them
        elif node.target is private.enter_autocast:
            self.stack.append(_setting(node.args))
            self.entries.append(node)
        elif node.target is private.exit_autocast:
            self.stack.pop()
            self.graph.erase_node(node)
        elif node.op == "call_function" and self.stack and node.target not in CONVERSIONS:
            self._rewrite(node)

    def _rewrite(self, node: torch.fx.Node) -> None:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            self._keep_region(node)
        if not isinstance(node.target, torch._ops.OpOverload):
            return
        values = {n: n.meta.get("val") for n in node.all_input_nodes}
        mode = private.fake_mode_of(list(values.values()))
        if mode is None or not any(_is_float(value) for value in values.values()):
            return
        plain, cast = _trace(node, values, mode, ()), _trace(node, values, mode, self._effective())
        if plain.same(cast):
            return
        for casts in (cast.input_casts(values), cast.common_casts(values)):
            if casts and self._agrees(node, values, casts, mode, cast):
                self._insert(node, casts, mode)
                return
        self._keep_region(node)

    def _agrees(self, node: Any, values: Any, casts: Any, mode: Any, wanted: _Trace) -> bool:
        """Whether the op on converted inputs, without autocast, does what autocast made it do."""
        with private.quiet_guards(mode), mode, torch.no_grad():
            converted = {n: v.to(casts[n]) if n in casts else v for n, v in values.items()}
        return _trace(node, converted, mode, ()).same_but_casts(wanted)

    def _insert(self, node: torch.fx.Node, casts: dict[torch.fx.Node, torch.dtype], mode: Any) -> None:
        for source, dtype in casts.items():
            key = (source, dtype)
            if key not in self.made:
                with self.graph.inserting_before(node):
                    made = self.graph.call_function(TO_COPY, (source,), {"dtype": dtype})
                with private.quiet_guards(mode), mode, torch.no_grad():
                    made.meta = {**carried(node.meta), "val": source.meta["val"].to(dtype)}
                self.made[key] = made
                self.count += 1
            node.replace_input_with(source, self.made[key])

    def _keep_region(self, node: torch.fx.Node) -> None:
        """Give the op an autocast region of its own."""
        for setting in self._effective():
            with self.graph.inserting_before(node):
                entry = self.graph.call_function(private.enter_autocast, setting)
            with self.graph.inserting_after(node):
                leave = self.graph.call_function(private.exit_autocast, (entry,))
            entry.meta, leave.meta = carried(node.meta), carried(node.meta)

    def _effective(self) -> tuple[Setting, ...]:
        """The innermost setting of each device, where it is enabled."""
        innermost = {setting[0]: setting for setting in self.stack}
        return tuple(setting for setting in innermost.values() if setting[2])


def _setting(args: tuple[Any, ...]) -> Setting:
    device = str(args[0])
    dtype = args[1] if len(args) > 1 and args[1] is not None else torch.get_autocast_dtype(device)
    return device, dtype, args[2] if len(args) > 2 else True, args[3] if len(args) > 3 and args[3] is not None else True


@dataclass
class _Trace:
    """What one op dispatches to: (operator, dtypes of its tensor arguments), with conversions of inputs apart."""

    steps: list[tuple[Any, tuple[torch.dtype, ...]]] = field(default_factory=list)
    conversions: list[tuple[Any, torch.dtype]] = field(default_factory=list)

    def same(self, other: _Trace) -> bool:
        return self.steps == other.steps

    def input_casts(self, values: dict[torch.fx.Node, Any]) -> dict[torch.fx.Node, torch.dtype]:
        """The inputs converted directly, and to what."""
        return {n: dtype for n, v in values.items() for source, dtype in self.conversions if source is v}

    def common_casts(self, values: dict[torch.fx.Node, Any]) -> dict[torch.fx.Node, torch.dtype]:
        """Every float input, to the one dtype converted to, if a conversion may move before all else that is done.

        That is so where only views come before it: einsum and tensordot convert views of their inputs.
        """
        dtypes = {dtype for _, dtype in self.conversions}
        if len(dtypes) != 1:
            return {}
        dtype = dtypes.pop()
        computing = [seen for operator, seen in self.steps if operator is not TO_COPY and not _moves_only(operator)]
        if any(d.is_floating_point and d != dtype for seen in computing for d in seen):
            return {}
        return {n: dtype for n, v in values.items() if _is_float(v) and v.dtype != dtype}

    def same_but_casts(self, other: _Trace) -> bool:
        """Equal after conversions are dropped; a view may be of another float dtype."""
        return _core(self.steps) == _core(other.steps)


def _core(steps: list[tuple[Any, tuple[torch.dtype, ...]]]) -> list[Any]:
    return [(op, None if _moves_only(op) else dtypes) for op, dtypes in steps if op is not TO_COPY]


def _moves_only(operator: Any) -> bool:
    """Whether the operator returns a view or a copy of its input's elements."""
    returns = operator._schema.returns
    views = bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)
    return views or operator in (torch.ops.aten.clone.default, torch.ops.aten._unsafe_view.default)


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace = _Trace()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.namespace == "prim":
            return out  # autocast asks each input for its device
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        self.trace.steps.append((func, tuple(leaf.dtype for leaf in leaves)))
        if func is TO_COPY:
            self.trace.conversions.append((args[0], out.dtype))
        return out


def _trace(node: torch.fx.Node, values: dict[torch.fx.Node, Any], mode: Any, settings: tuple[Setting, ...]) -> _Trace:
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: values[n])
    assert callable(node.target)
    recorder = _Recorder()
    with ExitStack() as stack:
        stack.enter_context(private.quiet_guards(mode))
        stack.enter_context(torch.no_grad())
        for device in ("cpu", "cuda"):
            stack.enter_context(torch.autocast(device, enabled=False)) if torch.is_autocast_enabled(device) else None
        for setting in settings:
            stack.enter_context(torch.autocast(*setting))
        stack.enter_context(mode)
        stack.enter_context(recorder)
        node.target(*args, **kwargs)
    return recorder.trace


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
