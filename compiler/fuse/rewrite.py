"""From a match to ``attn.attention``: the attributes, the operand views and the result view."""

from __future__ import annotations

import sympy

from attnc.compiler.fuse.axes import equal
from attnc.compiler.fuse.layout import PERMUTES, is_contiguous_copy, permutation, tensor_type
from attnc.compiler.fuse.masking import fill_class, guarded, readable, split
from attnc.compiler.fuse.match import Match, Operand
from attnc.compiler.fuse.reject import Reject
from attnc.compiler.host.sizes import materialize
from attnc.ir import index as ix
from attnc.ir import score as sc
from attnc.ir.attention import AttentionSpec
from attnc.ir.graph import Graph
from attnc.ir.types import Dim, DType, TensorType, size
from attnc.ir.values import Arg, Op, Value

KERNEL_DTYPES = (DType.F32, DType.BF16, DType.F16)


def specify(graph: Graph, match: Match) -> tuple[AttentionSpec, list[Value]]:
    """The attributes of a match and its side operands, in the order of their names. Raises Reject."""
    _check_types(match)
    ranges = ranges_of(match)
    masked = split(match.score)
    mask = readable(ix.simplify(masked.mask, ranges))
    if masked.visible is None or mask is sympy.false:
        edit = "Invert the mask: masked_fill hides where it is True, SDPA where it is False."
        raise Reject("ATTNC-NOTHING-VISIBLE", "the mask hides every key from every query", match.root, edit=edit)
    fill = fill_class(masked.fills)
    masks_by_data = None if mask is sympy.true else guarded(masked.visible, fill)
    score, visible = sc.simplify(match.score, ranges), sc.simplify(masks_by_data or masked.visible, ranges)
    if not sc.uses_qk(visible):
        raise Reject("ATTNC-NOT-ATTENTION", "the visible scores do not depend on Q·Kᵀ", match.root)
    weight = None if match.weight is None else sc.simplify(match.weight, ranges)
    sink = None if match.sink is None else sc.simplify(match.sink, ranges)
    nodes = [node for node in (score, visible, weight, sink) if node is not None]
    read = set().union(*(sc.side_names(n) for n in nodes), {load.name for load in ix.loads(mask)})
    names = sorted(read, key=lambda name: int(name[1:]))
    renamed = {old: f"t{i}" for i, old in enumerate(names)}
    score, visible = sc.rename_loads(score, renamed), sc.rename_loads(visible, renamed)
    weight = None if weight is None else sc.rename_loads(weight, renamed)
    sink = None if sink is None else sc.rename_loads(sink, renamed)
    mask = sc.rename_loads(sc.index(mask, DType.B1), renamed).value if ix.loads(mask) else mask
    sizes = set().union(*(sc.sizes_of(n) for n in nodes), ix.sizes_of(mask))
    spec = AttentionSpec(
        q_axes=_names(match, match.q) if match.query else ("q", *_names(match, match.q)),
        k_axes=_names(match, match.k),
        v_axes=_names(match, match.v),
        out_axes=_out_names(match, wanted_order(graph, match.result)),
        score=score,
        visible=visible,
        mask=mask,
        fill=fill,
        out_dtype=tensor_type(match.result).dtype,
        softmax_dtype=match.softmax_dtype,
        weight=weight,
        softmax="plain" if sink is None else "plus_one" if _is_zero(sink) else "sink",
        sink=None if sink is None or _is_zero(sink) else sink,
        dead_rows="zero" if match.zero_dead_rows or masks_by_data else "source",
        sizes=tuple(sorted(sizes)),
    )
    return spec, [match.sides[int(name[1:])] for name in names]


def rewrite(graph: Graph, match: Match, spec: AttentionSpec, sides: list[Value], replaced: dict[Value, Value]) -> Op:
    """Insert the attention before the op it replaces and make every reader use it.

    ``replaced`` holds what attentions matched at the same time were replaced by, as this one's result will be.
    """
    before = match.result.op
    assert before is not None
    lengths = match.names_to_lengths()
    q, k, v = (
        _viewed(graph, match, Operand(replaced.get(operand.value, operand.value), operand.coords), axes, before)
        for operand, axes in ((match.q, spec.q_axes), (match.k, spec.k_axes), (match.v, spec.v_axes))
    )
    sides = [replaced.get(side, side) for side in sides]
    shape = tuple(lengths[name] for name in spec.out_axes)
    device = tensor_type(match.result).device
    op = graph.create(
        "attn.attention",
        (q, k, v, tuple(sides), tuple(materialize(graph, size(name), before) for name in spec.sizes)),
        (TensorType(spec.out_dtype, shape, device),),
        attrs={"spec": spec},
        loc=match.root.loc,
        before=before,
        names=("attention",),
    )
    op.meta = dict(before.meta)
    out = _restored(graph, op.result, match.result, before)
    graph.replace_uses(match.result, out)
    replaced[match.result] = out
    return op


def _is_zero(sink: sc.Node) -> bool:
    return sink.op == "const" and sink.value == 0


def _check_types(match: Match) -> None:
    for operand in (match.q, match.k, match.v):
        kind = tensor_type(operand.value)
        if kind.dtype not in KERNEL_DTYPES:
            reason, edit = f"no kernel for {kind.dtype.value}", "Cast Q, K and V to float32, bfloat16 or float16."
            raise Reject("ATTNC-DTYPE", reason, match.root, edit=edit)
    if tensor_type(match.result).dtype not in KERNEL_DTYPES:
        raise Reject("ATTNC-DTYPE", f"no kernel that writes {tensor_type(match.result).dtype.value}", match.root)


def ranges_of(match: Match) -> dict[sympy.Symbol, tuple[sympy.Expr, sympy.Expr]]:
    """Inclusive bounds of the axes that formulas read."""
    lengths = match.names_to_lengths().items()
    return {ix.axis(name): (sympy.Integer(0), sympy.sympify(n) - 1) for name, n in lengths if name not in ("d", "e")}


def _names(match: Match, operand: Operand) -> tuple[str, ...]:
    return tuple(match.names[axis] for axis in operand.axes())


def _out_names(match: Match, order: tuple[int, ...]) -> tuple[str, ...]:
    names = [match.names[axis] for i in order for axis in match.out_coords[i]]
    if match.query is None:
        names.insert(names.index("e"), "q")
    return tuple(names)


def wanted_order(graph: Graph, value: Value) -> tuple[int, ...]:
    """The memory order to write a value in: that of a contiguous copy or reshape, where nothing else reads it.

    Any other reader keeps the order the program had: a view further on, or the caller, may rely on its strides.
    """
    order = tuple(range(tensor_type(value).rank))
    reader = _only_reader(graph, value)
    if reader is not None and reader.name in PERMUTES:
        order = permutation(reader, len(order))
        reader = _only_reader(graph, reader.result)
    copied = reader is not None and (reader.name == "aten.reshape.default" or is_contiguous_copy(reader))
    return order if copied else memory_order(value)


def _only_reader(graph: Graph, value: Value) -> Op | None:
    return value.users[0] if len(value.users) == 1 and value not in graph.output_values() else None


def memory_order(value: Value) -> tuple[int, ...]:
    """The dimensions of a dense tensor from the slowest to the fastest, as its strides say; as they are where unknown.

    Strides are products of dimensions, so giving every size some value above 1 orders them.
    """
    kind = tensor_type(value)
    if kind.strides is None:
        return tuple(range(kind.rank))
    samples = [_sample(stride) for stride in kind.strides]
    return tuple(sorted(range(kind.rank), key=lambda i: (-samples[i], i)))


def _sample(dim: Dim) -> int:
    """A dimension with each size replaced by some number of at least 2, the same everywhere."""
    if isinstance(dim, int):
        return dim
    symbols = sorted(dim.free_symbols, key=str)
    return int(dim.subs({symbol: 101 + 2 * i for i, symbol in enumerate(symbols)}))


def _restored(graph: Graph, out: Value, wanted: Value, before: Op) -> Value:
    """The attention's result in the shape and memory order of the value it replaces: a view and a permutation."""
    shape, order = tensor_type(wanted).shape, wanted_order(graph, wanted)
    inner = tuple(shape[i] for i in order)
    written = tensor_type(out).shape
    if len(written) != len(inner) or not all(map(equal, written, inner)):
        out = _view(graph, out, inner, before)
    if order == tuple(range(len(order))):
        return out
    back = tuple(order.index(i) for i in range(len(order)))
    kind = tensor_type(wanted)
    op = graph.create(
        "aten.permute.default",
        (out, back),
        (TensorType(kind.dtype, shape, kind.device, kind.strides),),
        loc=before.loc,
        before=before,
    )
    return op.result


def _viewed(graph: Graph, match: Match, operand: Operand, axes: tuple[str, ...], before: Op) -> Value:
    """The operand with one dimension for each axis: splits of dimensions, which any strides allow."""
    shape = tensor_type(operand.value).shape
    lengths = match.names_to_lengths()
    wanted = tuple(lengths[name] for name in axes)
    if len(shape) == len(wanted) and all(len(dim) == 1 for dim in operand.coords):
        return operand.value
    return _view(graph, operand.value, wanted, before)


def _view(graph: Graph, value: Value, shape: tuple[Dim, ...], before: Op) -> Value:
    """``aten.view`` to a shape of the same elements; one symbolic length is left for the view to infer."""
    symbolic = [i for i, n in enumerate(shape) if not isinstance(n, int)]
    sizes: tuple[Arg, ...] = tuple(
        -1 if symbolic == [i] else n if isinstance(n, int) else materialize(graph, n, before)
        for i, n in enumerate(shape)
    )
    kind = tensor_type(value)
    op = graph.create(
        "aten.view.default",
        (value, sizes),
        (TensorType(kind.dtype, shape, kind.device),),
        loc=before.loc,
        before=before,
    )
    return op.result
