"""Graphs that must be refused, or be what the rules say: each is one way to be wrong."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Trap:
    """A graph, and why it is easily got wrong. ``alone``: seen with one token of one request only."""

    why: str
    lines: str
    alone: bool = False


TRAPS: dict[str, Trap] = {
    "full_like a size": Trap(
        "the value that full_like fills in may be a size",
        """
%y: f32[4] = aten.full_like.default(%vec, %s)
""",
    ),
    "a size filled into a constant": Trap(
        "an operator without a rule takes a size beside constants",
        """
%y: f32[4] = aten.fill.Scalar(%vec, %s)
""",
    ),
    "a part of a constant from a size on": Trap(
        "an operator without a rule takes a size beside constants",
        """
%n: int<64 - S> = py.sub(64, %s)
%y: f32[4] = aten.narrow.default(%long, 0, %s, 4)
""",
    ),
    "roll by a size": Trap(
        "the shift may be a size",
        """
%y: f32[64] = aten.roll.default(%long, [%s], [0])
""",
    ),
    "roll features by a size": Trap(
        "the shift may be a size",
        """
%y: f32[B, S, 4] = aten.roll.default(%x, [%s], [-1])
""",
    ),
    "a diagonal that is a size": Trap(
        "of static dimensions the diagonal isn't looked at",
        """
%n: int<S - 5> = py.sub(%s, 5)
%y: f32[4, 4] = aten.tril.default(%weight, %n)
""",
    ),
    "pad with a size": Trap(
        "the value that pads may be a size",
        """
%y: f32[B, S, 6] = aten.constant_pad_nd.default(%x, [1, 1], %s)
""",
    ),
    "scatter a size": Trap(
        "the value that is scattered may be a size",
        """
%y: f32[4] = aten.scatter.value(%vec, 0, %two, %s)
""",
    ),
    "addmm with a size as factor": Trap(
        "beta and alpha may be sizes",
        """
%y: f32[B*S, 4] = aten.addmm.default(%vec, %flat, %weight, beta=%s)
""",
    ),
    "variance with a size as correction": Trap(
        "the correction may be a size",
        """
%y: f32[B, S] = aten.var.correction(%x8, [-1], correction=%s)
""",
    ),
    "a norm whose order is a size": Trap(
        "the order may be a size",
        """
%y: f32[B, S] = aten.linalg_vector_norm.default(%x, %s, [-1])
""",
    ),
    "addmm of the request number": Trap(
        "joined() drops the role of the bias",
        """
%n: i64[B] = aten.arange.default(%b)
%f: f32[B] = aten._to_copy.default(%n, dtype=dtype<float32>)
%u: f32[B, 1] = aten.unsqueeze.default(%f, 1)
%z: f32[B, 4] = aten.zeros.default([%b, 4])
%y: f32[B, 4] = aten.addmm.default(%u, %z, %weight)
""",
    ),
    "baddbmm of the request number": Trap(
        "joined() drops the role of the bias",
        """
%n: i64[B] = aten.arange.default(%b)
%f: f32[B] = aten._to_copy.default(%n, dtype=dtype<float32>)
%u: f32[B, 1, 1] = aten.view.default(%f, [%b, 1, 1])
%z: f32[B, 4, 4] = aten.zeros.default([%b, 4, 4])
%y: f32[B, 4, 4] = aten.baddbmm.default(%u, %z, %z)
""",
    ),
    "copy of the request number": Trap(
        "joined() drops the role of the source",
        """
%n: i64[B] = aten.arange.default(%b)
%z: i64[B] = aten.zeros.default([%b], dtype=dtype<int64>)
%y: i64[B] = aten.copy.default(%z, %n)
""",
    ),
    "the request number as a bias": Trap(
        "only the kind of weights is looked at, not the role",
        """
%n: i64[B] = aten.arange.default(%b)
%f: f32[B] = aten._to_copy.default(%n, dtype=dtype<float32>)
%z: f32[B, 4] = aten.zeros.default([%b, 4])
%q: f32[1, 4] = aten.unsqueeze.default(%vec, 0)
%y: f32[1, B] = aten.linear.default(%q, %z, %f)
""",
    ),
    "the request number as weights": Trap(
        "only the kind of weights is looked at, not the role",
        """
%n: i64[B] = aten.arange.default(%b)
%f: f32[B] = aten._to_copy.default(%n, dtype=dtype<float32>)
%u: f32[B, 1] = aten.unsqueeze.default(%f, 1)
%y: f32[B] = aten.linear.default(%one, %u)
""",
    ),
    "a linear layer on the request number": Trap(
        "the role of the input is kept",
        """
%n: i64[B] = aten.arange.default(%b)
%u: i64[B, 1] = aten.unsqueeze.default(%n, 1)
%w: i64[1, 1] = aten.full.default([1, 1], 2)
%y: i64[B, 1] = aten.linear.default(%u, %w)
""",
    ),
    "the request numbers as a table": Trap(
        "the role of the table isn't looked at",
        """
%n: i64[B] = aten.arange.default(%b)
%u: i64[1, B] = aten.unsqueeze.default(%n, 0)
%y: i64[1, B] = aten.embedding.default(%u, %zero)
""",
    ),
    "a triangle over requests": Trap(
        "two equal dimensions needn't be positions",
        """
%o: f32[B, B] = aten.ones.default([%b, %b])
%y: f32[B, B] = aten.tril.default(%o)
""",
    ),
    "a triangle over tokens of all requests": Trap(
        "two equal dimensions needn't be positions",
        """
%c: f32[B*S, 1] = aten.view.default(%ones, [-1, 1])
%r: f32[1, B*S] = aten.view.default(%ones, [1, -1])
%o: f32[B*S, B*S] = aten.mul.Tensor(%c, %r)
%y: f32[B*S, B*S] = aten.tril.default(%o)
""",
    ),
    "a triangle over repeated positions": Trap(
        "an offset diagonal of merged positions depends on S",
        """
%o: f32[S] = aten.ones.default([%s])
%r: f32[4*S] = aten.repeat.default(%o, [4])
%c: f32[4*S, 1] = aten.unsqueeze.default(%r, 1)
%t: f32[1, 4*S] = aten.unsqueeze.default(%r, 0)
%m: f32[4*S, 4*S] = aten.mul.Tensor(%c, %t)
%y: f32[4*S, 4*S] = aten.tril.default(%m, -3)
""",
    ),
    "the front of two positions merged": Trap(
        "a front is stable only where S stands first and alone",
        """
%n: int<S**2> = py.mul(%s, %s)
%v: f32[S**2] = aten.view.default(%grid, [%n])
%y: f32[9] = aten.slice.Tensor(%v, 0, 0, 9)
""",
    ),
    "the front of repeated positions": Trap(
        "a front is stable only where S stands first and alone",
        """
%r: f32[4*S] = aten.repeat.default(%posf, [4])
%y: f32[6] = aten.slice.Tensor(%r, 0, 0, 6)
""",
    ),
    "the front of positions of all requests": Trap(
        "a front is stable only where S stands first and alone",
        """
%v: f32[B*S] = aten.view.default(%own, [-1])
%y: f32[5] = aten.slice.Tensor(%v, 0, 0, 5)
""",
    ),
    "layer_norm over positions": Trap(
        "what _along() says of the kind is dropped",
        """
%t: f32[4, S] = aten.transpose.int(%ptab, 0, 1)
%y: f32[4, S] = aten.layer_norm.default(%t, [%s])
""",
    ),
    "sort over positions": Trap(
        "what _along() says of the kind is dropped",
        """
%a: (f32[S], i64[S]) = aten.sort.default(%posf, -1)
%y: i64[S] = py.getitem(%a, 1)
""",
    ),
    "the largest of all positions": Trap(
        "what _along() says of the kind is dropped",
        """
%a: (i64[2], i64[2]) = aten.topk.default(%pos, 2)
%y: i64[2] = py.getitem(%a, 0)
""",
    ),
    "argsort over requests": Trap(
        "what _along() says of the kind is dropped",
        """
%z: f32[B] = aten.zeros.default([%b])
%y: i64[B] = aten.argsort.stable(%z, stable=True)
""",
    ),
    "as many of a constant as there are tokens": Trap(
        "places along a sorted dimension aren't constant along S",
        """
%a: (f32[S], i64[S]) = aten.topk.default(%long, %s)
%y: f32[S] = py.getitem(%a, 0)
""",
    ),
    "one_hot as wide as the batch": Trap(
        "places along the new dimension aren't constant along B",
        """
%y: i64[1, B] = aten.one_hot.default(%zero, %b)
""",
    ),
    "one_hot as wide as the sequence": Trap(
        "places along the new dimension aren't constant along S",
        """
%y: i64[1, S] = aten.one_hot.default(%zero, %s)
""",
    ),
    "scatter into the first token": Trap(
        "an index of length 1 is no broadcast: it reaches the first place only",
        """
%z: i64[1, 1, 1] = aten.zeros.default([1, 1, 1], dtype=dtype<int64>)
%y: f32[B, S, 4] = aten.scatter.value(%ones4, -1, %z, 9.0)
""",
    ),
    "scatter into the first token's features": Trap(
        "an index of length 1 is no broadcast: it reaches the first place only",
        """
%z: i64[1, 1, 1] = aten.zeros.default([1, 1, 1], dtype=dtype<int64>)
%y: f32[B, S, 4] = aten.scatter.value(%x, -1, %z, 9.0)
""",
    ),
    "positions read at negative ones": Trap(
        "a negative index counts from the end",
        """
%p: i64[S] = aten.sub.Tensor(%pos, 3)
%y: f32[S] = aten.index.Tensor(%posf, [%p])
""",
    ),
    "positions of requests read at negative ones": Trap(
        "a negative index counts from the end",
        """
%p: i64[S] = aten.sub.Tensor(%pos, 3)
%z: i64[] = aten.scalar_tensor.default(0, dtype=dtype<int64>)
%y: f32[S] = aten.index.Tensor(%own, [%z, %p])
""",
    ),
    "differences read at a position": Trap(
        "a table of differences is stable in i − (S − 1), not in i",
        """
%z: i64[S] = aten.zeros_like.default(%pos)
%y: f32[S] = aten.index.Tensor(%fars, [%pos, %z])
""",
    ),
    "repeated positions read at a position": Trap(
        "merged positions are not stable in the index",
        """
%r: f32[4*S] = aten.repeat.default(%posf, [4])
%u: f32[4*S, 1] = aten.unsqueeze.default(%r, 1)
%p: i64[S] = aten.mul.Tensor(%pos, 2)
%z: i64[S] = aten.zeros_like.default(%pos)
%y: f32[S] = aten.index.Tensor(%u, [%p, %z])
""",
    ),
    "differences with an appended end": Trap(
        "only a prepended part keeps fronts",
        """
%z: f32[1] = aten.zeros.default([1])
%y: f32[S] = aten.diff.default(%posf, 1, 0, append=%z)
""",
    ),
    "differences of requests": Trap(
        "the dimension isn't looked at",
        """
%z: f32[1, S] = aten.zeros.default([1, %s])
%y: f32[B, S] = aten.diff.default(%own, 1, 0, %z)
""",
    ),
    "differences from a length": Trap(
        "what is prepended isn't joined",
        """
%y: f32[S] = aten.diff.default(%posf, 1, 0, %total)
""",
    ),
    "differences from a token": Trap(
        "what is prepended isn't joined",
        """
%u: f32[B, S, 1] = aten.unsqueeze.default(%own, 2)
%y: f32[B, S, 1] = aten.diff.default(%u, 1, -1, %x1)
""",
    ),
    "differences of a constant from zero": Trap(
        "the first is unlike the others: no constant",
        """
%o: f32[S] = aten.ones.default([%s])
%z: f32[1] = aten.zeros.default([1])
%y: f32[S] = aten.diff.default(%o, 1, 0, %z)
""",
    ),
    "squeeze of the requests": Trap(
        "squeeze removes B where the batch is 1",
        """
%y: f32[B, S, 4] = aten.squeeze.dim(%x, 0)
""",
        alone=True,
    ),
    "squeeze of the tokens": Trap(
        "squeeze removes S where one token is new",
        """
%y: f32[B, S, 4] = aten.squeeze.dims(%x, [1])
""",
        alone=True,
    ),
    "an order copied is data": Trap(
        "joined() drops the role of the source",
        """
%order: i64[2*B*S] = aten.argsort.default(%experts)
%base: i64[2*B*S] = aten.zeros_like.default(%order)
%n: int<2*B*S> = aten.sym_size.int(%order, 0)
%rows: i64[2*B*S] = aten.arange.default(%n)
%inv: i64[2*B*S] = aten.index_put.default(%base, [%order], %rows)
%data: i64[2*B*S] = aten.copy.default(%base, %order)
%y: i64[2*B*S] = aten.index.Tensor(%data, [%inv])
""",
    ),
    "offsets of an order that falls": Trap(
        "counts ascend, the order descends",
        """
%a: (i64[2*B*S], i64[2*B*S]) = aten.sort.default(%experts, -1, True)
%sorted: i64[2*B*S] = py.getitem(%a, 0)
%order: i64[2*B*S] = py.getitem(%a, 1)
%toks: i64[2*B*S] = aten.floor_divide.default(%order, 2)
%in: f32[2*B*S, 4] = aten.index.Tensor(%flat, [%toks])
%base: i64[2*B*S] = aten.empty_like.default(%order)
%n: int<2*B*S> = aten.sym_size.int(%order, 0)
%rows: i64[2*B*S] = aten.arange.default(%n)
%inv: i64[2*B*S] = aten.index_put.default(%base, [%order], %rows)
%fl: f32[2*B*S] = aten._to_copy.default(%sorted, dtype=dtype<float32>)
%cnt: f32[4] = aten.histc.default(%fl, 4, 0, 3)
%off: i32[4] = aten.cumsum.default(%cnt, 0, dtype=dtype<int32>)
%out: f32[2*B*S, 4] = aten._grouped_mm.default(%in, %many, %off)
%y: f32[2*B*S, 4] = aten.index.Tensor(%out, [%inv])
""",
    ),
    "two orders of one value": Trap(
        "orders are told apart by what is sorted, not by the sort",
        """
%order: i64[2*B*S] = aten.argsort.default(%experts)
%down: i64[2*B*S] = aten.argsort.default(%experts, -1, True)
%toks: i64[2*B*S] = aten.floor_divide.default(%order, 2)
%in: f32[2*B*S, 4] = aten.index.Tensor(%flat, [%toks])
%base: i64[2*B*S] = aten.empty_like.default(%order)
%n: int<2*B*S> = aten.sym_size.int(%order, 0)
%rows: i64[2*B*S] = aten.arange.default(%n)
%inv: i64[2*B*S] = aten.index_put.default(%base, [%down], %rows)
%y: f32[2*B*S, 4] = aten.index.Tensor(%in, [%inv])
""",
    ),
    "a histogram that leaves experts out": Trap(
        "the bounds of histc aren't looked at",
        """
%a: (i64[2*B*S], i64[2*B*S]) = aten.sort.default(%experts)
%sorted: i64[2*B*S] = py.getitem(%a, 0)
%order: i64[2*B*S] = py.getitem(%a, 1)
%toks: i64[2*B*S] = aten.floor_divide.default(%order, 2)
%in: f32[2*B*S, 4] = aten.index.Tensor(%flat, [%toks])
%base: i64[2*B*S] = aten.empty_like.default(%order)
%n: int<2*B*S> = aten.sym_size.int(%order, 0)
%rows: i64[2*B*S] = aten.arange.default(%n)
%inv: i64[2*B*S] = aten.index_put.default(%base, [%order], %rows)
%fl: f32[2*B*S] = aten._to_copy.default(%sorted, dtype=dtype<float32>)
%cnt: f32[4] = aten.histc.default(%fl, 4, 1, 4)
%off: i32[4] = aten.cumsum.default(%cnt, 0, dtype=dtype<int32>)
%out: f32[2*B*S, 4] = aten._grouped_mm.default(%in, %many, %off)
%y: f32[2*B*S, 4] = aten.index.Tensor(%out, [%inv])
""",
    ),
    "counts in another order": Trap(
        "counts keep their role when they are moved",
        """
%a: (i64[2*B*S], i64[2*B*S]) = aten.sort.default(%experts)
%sorted: i64[2*B*S] = py.getitem(%a, 0)
%order: i64[2*B*S] = py.getitem(%a, 1)
%toks: i64[2*B*S] = aten.floor_divide.default(%order, 2)
%in: f32[2*B*S, 4] = aten.index.Tensor(%flat, [%toks])
%base: i64[2*B*S] = aten.empty_like.default(%order)
%n: int<2*B*S> = aten.sym_size.int(%order, 0)
%rows: i64[2*B*S] = aten.arange.default(%n)
%inv: i64[2*B*S] = aten.index_put.default(%base, [%order], %rows)
%fl: f32[2*B*S] = aten._to_copy.default(%sorted, dtype=dtype<float32>)
%cnt: f32[4] = aten.histc.default(%fl, 4, 0, 3)
%turn: f32[4] = aten.flip.default(%cnt, [0])
%off: i32[4] = aten.cumsum.default(%turn, 0, dtype=dtype<int32>)
%out: f32[2*B*S, 4] = aten._grouped_mm.default(%in, %many, %off)
%y: f32[2*B*S, 4] = aten.index.Tensor(%out, [%inv])
""",
    ),
    "a product drops the order of its rows": Trap(
        "matmul with a vector drops the source",
        """
%one_: i64[2*B*S] = aten.argsort.default(%experts)
%two_: i64[2*B*S] = aten.argsort.default(%other)
%ta: i64[2*B*S] = aten.floor_divide.default(%one_, 2)
%tb: i64[2*B*S] = aten.floor_divide.default(%two_, 2)
%ra: f32[2*B*S, 4] = aten.index.Tensor(%flat, [%ta])
%rb: f32[2*B*S, 4] = aten.index.Tensor(%flat, [%tb])
%va: f32[2*B*S] = aten.mv.default(%ra, %vec)
%vu: f32[2*B*S, 1] = aten.unsqueeze.default(%va, 1)
%sum: f32[2*B*S, 4] = aten.add.Tensor(%vu, %rb)
%base: i64[2*B*S] = aten.empty_like.default(%one_)
%n: int<2*B*S> = aten.sym_size.int(%one_, 0)
%rows: i64[2*B*S] = aten.arange.default(%n)
%inv: i64[2*B*S] = aten.index_put.default(%base, [%two_], %rows)
%y: f32[2*B*S, 4] = aten.index.Tensor(%sum, [%inv])
""",
    ),
    "a look-up drops the order of its rows": Trap(
        "_rows() drops the source",
        """
%one_: i64[2*B*S] = aten.argsort.default(%experts)
%two_: i64[2*B*S] = aten.argsort.default(%other)
%ta: i64[2*B*S] = aten.floor_divide.default(%one_, 2)
%tb: i64[2*B*S] = aten.floor_divide.default(%two_, 2)
%ra: f32[2*B*S, 4] = aten.index.Tensor(%flat, [%ta])
%rb: f32[2*B*S, 4] = aten.index.Tensor(%flat, [%tb])
%va: f32[2*B*S, 1] = aten.index.Tensor(%ra, [None, %zero])
%sum: f32[2*B*S, 4] = aten.add.Tensor(%va, %rb)
%base: i64[2*B*S] = aten.empty_like.default(%one_)
%n: int<2*B*S> = aten.sym_size.int(%one_, 0)
%rows: i64[2*B*S] = aten.arange.default(%n)
%inv: i64[2*B*S] = aten.index_put.default(%base, [%two_], %rows)
%y: f32[2*B*S, 4] = aten.index.Tensor(%sum, [%inv])
""",
    ),
    "a gather drops the order of its rows": Trap(
        "gather drops the source",
        """
%one_: i64[2*B*S] = aten.argsort.default(%experts)
%two_: i64[2*B*S] = aten.argsort.default(%other)
%ta: i64[2*B*S] = aten.floor_divide.default(%one_, 2)
%tb: i64[2*B*S] = aten.floor_divide.default(%two_, 2)
%ra: f32[2*B*S, 4] = aten.index.Tensor(%flat, [%ta])
%rb: f32[2*B*S, 4] = aten.index.Tensor(%flat, [%tb])
%am: i64[2*B*S, 1] = aten.argmax.default(%ra, -1, True)
%va: f32[2*B*S, 1] = aten.gather.default(%ra, 1, %am)
%sum: f32[2*B*S, 4] = aten.add.Tensor(%va, %rb)
%base: i64[2*B*S] = aten.empty_like.default(%one_)
%n: int<2*B*S> = aten.sym_size.int(%one_, 0)
%rows: i64[2*B*S] = aten.arange.default(%n)
%inv: i64[2*B*S] = aten.index_put.default(%base, [%two_], %rows)
%y: f32[2*B*S, 4] = aten.index.Tensor(%sum, [%inv])
""",
    ),
    "an order that is padded": Trap(
        "pad keeps the role of what it adds to",
        """
%order: i64[2*B*S] = aten.argsort.default(%experts)
%u: i64[2*B*S, 1] = aten.unsqueeze.default(%order, 1)
%p: i64[2*B*S, 2] = aten.constant_pad_nd.default(%u, [0, 1], 0)
%bad: i64[2*B*S] = aten.select.int(%p, 1, 1)
%toks: i64[2*B*S] = aten.floor_divide.default(%bad, 2)
%in: f32[2*B*S, 4] = aten.index.Tensor(%flat, [%toks])
%base: i64[2*B*S] = aten.empty_like.default(%order)
%n: int<2*B*S> = aten.sym_size.int(%order, 0)
%rows: i64[2*B*S] = aten.arange.default(%n)
%inv: i64[2*B*S] = aten.index_put.default(%base, [%order], %rows)
%y: f32[2*B*S, 4] = aten.index.Tensor(%in, [%inv])
""",
    ),
    "row numbers through a linear layer": Trap(
        "linear keeps the role of its input",
        """
%order: i64[2*B*S] = aten.argsort.default(%experts)
%toks: i64[2*B*S] = aten.floor_divide.default(%order, 2)
%in: f32[2*B*S, 4] = aten.index.Tensor(%flat, [%toks])
%base: i64[2*B*S] = aten.zeros_like.default(%order)
%n: int<2*B*S> = aten.sym_size.int(%order, 0)
%rows: i64[2*B*S] = aten.arange.default(%n)
%u: i64[2*B*S, 1] = aten.unsqueeze.default(%rows, 1)
%z: i64[1, 1] = aten.zeros.default([1, 1], dtype=dtype<int64>)
%l: i64[2*B*S, 1] = aten.linear.default(%u, %z)
%bad: i64[2*B*S] = aten.squeeze.dim(%l, 1)
%inv: i64[2*B*S] = aten.index_put.default(%base, [%order], %bad)
%y: f32[2*B*S, 4] = aten.index.Tensor(%in, [%inv])
""",
    ),
    "row numbers as truth values": Trap(
        "a cast to another dtype keeps the role",
        """
%order: i64[2*B*S] = aten.argsort.default(%experts)
%toks: i64[2*B*S] = aten.floor_divide.default(%order, 2)
%in: f32[2*B*S, 4] = aten.index.Tensor(%flat, [%toks])
%base: i64[2*B*S] = aten.empty_like.default(%order)
%n: int<2*B*S> = aten.sym_size.int(%order, 0)
%rows: i64[2*B*S] = aten.arange.default(%n)
%b1: b1[2*B*S] = aten._to_copy.default(%rows, dtype=dtype<bool>)
%bad: i64[2*B*S] = aten._to_copy.default(%b1, dtype=dtype<int64>)
%inv: i64[2*B*S] = aten.index_put.default(%base, [%order], %bad)
%y: f32[2*B*S, 4] = aten.index.Tensor(%in, [%inv])
""",
    ),
    "rotary frequencies of the total length": Trap(
        "the frequencies aren't looked at",
        """
%t: f32[2] = aten.expand.default(%total, [2])
%y: f32[B, S, 4] = attn.rope(%x, [%pos], [%t], []) {
  style = "half", rotary_dim = 4, attention_factor = 1.0, rounded = False
}
""",
    ),
    "rotary positions that number requests": Trap(
        "joined() drops the role of positions",
        """
%n: i64[B] = aten.arange.default(%b)
%u: i64[B, 1] = aten.unsqueeze.default(%n, 1)
%fr: f32[2] = aten.slice.Tensor(%vec, 0, 0, 2)
%y: f32[B, S, 4] = attn.rope(%x, [%u], [%fr], []) {
  style = "half", rotary_dim = 4, attention_factor = 1.0, rounded = False
}
""",
    ),
    "the length meets the encoder": Trap(
        "a length is hidden by a kind above it",
        """
%y: f32[B, E, 4] = aten.mul.Tensor(%encoded, %total)
""",
    ),
    "positions meet the encoder": Trap(
        "what is computed once for each request has no positions",
        """
%u: f32[B, 1, 4] = aten.slice.Tensor(%encoded, 1, 0, 1)
%y: f32[B, S, 4] = aten.add.Tensor(%u, %ptab)
""",
    ),
    "tokens summed over the encoder's length": Trap(
        "the sum is as long as the encoder's input",
        """
%z: f32[E] = aten.ones.default([%e])
%v: f32[B, S, E] = aten.mul.Tensor(%x1, %z)
%y: f32[B, S] = aten.sum.dim_IntList(%v, [2])
""",
    ),
    "requests as channels": Trap(
        "a convolution without a batch has its channels in front",
        """
%u: f32[B, 4] = aten.select.int(%encoded, 1, 0)
%w: f32[B, B, 1] = aten.ones.default([%b, %b, 1])
%y: f32[B, 4] = aten.conv1d.default(%u, %w)
""",
    ),
}

CRASHES: dict[str, str] = {
    "parts of cummax": """
%a: (f32[B, S, 4], i64[B, S, 4]) = aten.cummax.default(%x, -1)
%y: f32[B, S, 4] = py.getitem(%a, 0)
""",
    "an empty tensor in a cat": """
%e: f32[0] = aten.empty.memory_format([0])
%y: f32[B, 3, S, 4] = aten.cat.default([%e, %h], -2)
""",
    "a grouped product without groups": """
%a: f32[4, 4, 4] = aten._grouped_mm.default(%many, %many)
%y: f32[4, 4, 4] = aten.neg.default(%a)
""",
    "a floor under a maximum": """
%h2: int<floor(S/2)> = py.floordiv(%s, 2)
%m: int<max(1, floor(S/2))> = py.sym_max(1, %h2)
%y: f32[max(1, floor(S/2))] = aten.slice.Tensor(%long, 0, 0, %m)
""",
    "an order repeated": """
%order: i64[2*B*S] = aten.argsort.default(%experts)
%r: i64[4*B*S] = aten.repeat.default(%order, [2])
%y: i64[4*B*S] = aten.floor_divide.default(%r, 2)
""",
    "an order of another rank": """
%order: i64[2*B*S] = aten.argsort.default(%experts)
%u: i64[1, 2*B*S] = aten.unsqueeze.default(%order, 0)
%y: f32[1, 2*B*S, 4] = aten.index.Tensor(%flat, [%u])
""",
}
"""Graphs that must be refused, or accepted, with no other exception than NotDerivable."""
