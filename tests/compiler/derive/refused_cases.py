"""Ops that must not be accepted, with the end of the code that says why. Values are those of ``worlds.INPUTS``."""

from __future__ import annotations

from tests.compiler.derive.accepted_cases import BACK, COUNTED, ORDERED, ROPE

REFUSED: dict[str, dict[str, str]] = {
    "pointwise": {
        "%t: f32[1, B, S, 4] = aten.unsqueeze.default(%x, 0)\n%u: f32[B, 1, S, 4] = aten.unsqueeze.default(%x, 1)\n"
        "%y: f32[B, B, S, 4] = aten.sub.Tensor(%t, %u)": "BATCH|MIXES",
        "%t: f32[B, 1, S, 4] = aten.unsqueeze.default(%x, 1)\n%u: f32[B, S, 1, 4] = aten.unsqueeze.default(%x, 2)\n"
        "%y: f32[B, S, S, 4] = aten.add.Tensor(%t, %u)": "MIXES",
        "%y: f32[B, S, S] = aten.add.Tensor(%x1, %posf)": "MIXES",
        "%y: f32[B, S, 4] = aten.mul.Tensor(%x, %s)": "LENGTH",
        "%y: f32[B, S, 4] = aten.add.Tensor(%x, %vec, alpha=%b)": "LENGTH",
        "%y: f32[B, S, 4] = aten.clamp.default(%x, 0, %s)": "LENGTH",
        "%y: f32[B, S, 4] = aten.masked_fill.Scalar(%x, %hot, %s)": "LENGTH",
        "%q: float<S/4> = py.truediv(%s, 4)\n%y: f32[B, S, 4] = aten.div.Tensor(%x, %q)": "LENGTH",
        "%y: f32[B, S, 4] = aten.add.Tensor(%x, %total)": "LENGTH",
        "%u: f32[B, 4] = aten.select.int(%encoded, 1, 0)\n%v: f32[B, 1, 4] = aten.unsqueeze.default(%u, 1)\n"
        "%y: f32[B, S, 4] = aten.add.Tensor(%x, %v)": "MIXES",
        "%y: f32[B, S, 4] = aten.mul.Tensor(%x, %e)": "LENGTH",
        "%u: f32[S, 1] = aten.unsqueeze.default(%late, 1)\n%y: f32[B, S, 4] = aten.mul.Tensor(%x, %u)": "LENGTH",
        "%n: i64[B] = aten.arange.default(%b)\n%y: i64[B] = aten.mul.Tensor(%n, 2)": "BATCH|MIXES",
        "%n: i64[B] = aten.arange.default(%b)\n%u: i64[B, 1] = aten.unsqueeze.default(%n, 1)\n"
        "%y: i64[B, S] = aten.add.Tensor(%ids, %u)": "BATCH|MIXES",
        "%n: int<B*S> = py.mul(%b, %s)\n%r: i64[B*S] = aten.arange.default(%n)\n"
        "%u: i64[B*S, 1] = aten.unsqueeze.default(%r, 1)\n"
        "%y: f32[B*S, 4] = aten.add.Tensor(%flat, %u)": "MIXES",
        "%t: f32[B, S, 4] = aten.view.default(%turned, [%b, %s, 4])\n%y: f32[B, S, 4] = aten.neg.default(%t)": "MIXES",
        "%n: int<64 - S> = py.sub(64, %s)\n%e: f32[S] = aten.slice.Tensor(%long, 0, %n, 64)\n"
        "%y: f32[S] = aten.mul.Tensor(%e, 2)": "LENGTH",
        "%y: f32[B, S, 4] = aten.dropout.default(%x, 0.1, True)": "RANDOM",
        "%y: f32[B, S, 4] = aten.native_group_norm_backward.default(%x)": "NO-RULE",
        "%y: f32[B, S, 4] = aten.rand_like.default(%x)": "RANDOM",
        "%y: f32[B, S, 4] = aten.add_.Tensor(%x, %vec)": "STATE",
    },
    "create": {
        "%n: int = aten.item.default(%ids)\n%y: i64[4] = aten.full.default([4], %n)": "DATA-SIZE",
        "%y: f32[B, S] = aten.tril.default(%ones)": "MIXES",
        "%t: f32[B, 4, S] = aten.transpose.int(%x, 1, 2)\n%y: f32[B, 4, S] = aten.triu.default(%t)": "MIXES",
        "%y: f32[S, S] = aten.tril.default(%grid, %s)": "MIXES",
        "%n: int<S + 1> = py.add(%s, 1)\n%y: f32[S + 1] = aten.zeros.default([%n])": "NO-RULE",
    },
    "layout": {
        "%y: f32[S, B, 4] = aten.view.default(%x, [%s, %b, 4])": "MIXES",
        "%y: f32[B, S, 12] = aten.view.default(%h, [%b, %s, 12])": "MIXES",
        "%y: f32[B, S, 12] = aten.reshape.default(%h, [%b, -1, 12])": "MIXES",
        "%y: f32[4*B, S] = aten.reshape.default(%x, [-1, %s])": "MIXES",
        "%u: f32[B, 1, S, 4] = aten.unsqueeze.default(%x, 1)\n"
        "%y: f32[B, S, S, 4] = aten.expand.default(%u, [%b, %s, %s, 4])": ("MIXES"),
        "%y: f32[B, S, S] = aten.expand.default(%x1, [%b, %s, %s])": "MIXES",
        "%y: f32[B, B, S, 4] = aten.expand.default(%x, [%b, %b, %s, 4])": "MIXES",
        "%y: f32[B*B, S, 4] = aten.repeat.default(%x, [%b, 1, 1])": "MIXES",
        "%y: f32[S**2] = aten.repeat.default(%posf, [%s])": "MIXES",
        "%y: f32[B, 2*S, 4] = aten.repeat_interleave.self_int(%x, 2, 1)": "MIXES",
        "%y: f32[2*S] = aten.repeat_interleave.self_int(%posf, 2)": "NO-RULE",
        "%y: f32[B, 2*S, 4] = aten.cat.default([%x, %x], 1)": "MIXES",
        "%y: f32[2*B, S, 4] = aten.cat.default([%x, %x])": "MIXES",
        "%t: f32[B, S, 4] = aten.transpose.int(%turned, 0, 1)\n%y: f32[B, S, 4] = aten.flip.default(%t, [1])": "MIXES",
        "%y: f32[B, S, 4] = aten.flip.default(%x, [0])": "MIXES",
        "%y: f32[S] = aten.flip.default(%posf, [-1])": "MIXES",
        "%y: f32[B, S, 4] = aten.roll.default(%x, [1], [1])": "MIXES",
        "%y: f32[B, S, 4] = aten.roll.default(%x, [1])": "MIXES",
        "%y: f32[B, S, 4] = aten.constant_pad_nd.default(%x, [0, 0, 1, -1])": "MIXES",
        "%y: f32[B, S + 1, 4] = aten.constant_pad_nd.default(%x, [0, 0, 1, 0], 0)": "MIXES",
        "%u: f32[B, S, 4, 1] = aten.unsqueeze.default(%x, 3)\n%y: f32[B, S, 4] = aten.squeeze.default(%u)": "MIXES",
        "%n: i64[B] = aten.arange.default(%b)\n%u: i64[B, 1] = aten.unsqueeze.default(%n, 1)\n"
        "%y: i64[B, S] = aten.expand.default(%u, [%b, %s])": "MIXES",
        "%n: i64[B] = aten.arange.default(%b)\n%y: i64[B, 2] = aten.stack.default([%n, %n], 1)": "BATCH",
        "%n: i64[B] = aten.arange.default(%b)\n%u: i64[B, 1] = aten.unsqueeze.default(%n, 1)\n"
        "%y: i64[B, 2] = aten.cat.default([%u, %u], 1)": "BATCH",
    },
    "selecting": {
        "%n: int<S - 1> = py.sub(%s, 1)\n%y: f32[B, S - 1, 4] = aten.slice.Tensor(%x, 1, 0, %n)": "MIXES",
        "%y: f32[B, S - 1, 4] = aten.slice.Tensor(%x, 1, 1, 9223372036854775807)": "MIXES",
        "%y: f32[B, 1, 4] = aten.slice.Tensor(%x, 1, -1)": "MIXES",
        "%y: f32[B, 2, 4] = aten.slice.Tensor(%x, -2, 0, 2)": "MIXES",
        "%y: f32[1, S, 4] = aten.slice.Tensor(%x, 0, 0, 1)": "MIXES",
        "%y: f32[3, 4] = aten.slice.Tensor(%ptab, 0, -3)": "MIXES",
        "%y: f32[3, 3] = aten.slice.Tensor(%fars, 0, 0, 3)": "MIXES",
        "%n: int<S - 2> = py.sub(%s, 2)\n%y: f32[B, S, 2] = aten.slice.Tensor(%x, 2, %n, %s)": "LENGTH",
        "%y: f32[B, 4] = aten.select.int(%x, 1, -1)": "MIXES",
        "%y: f32[S, 4] = aten.select.int(%x, 0, 0)": "MIXES",
        "%y: f32[4] = aten.select.int(%ptab, 0, -1)": "MIXES",
        "%y: f32[3] = aten.select.int(%fars, 0, 0)": "MIXES",
        "%y: f32[B, S] = aten.select.int(%x, 2, %s)": "LENGTH",
        "%n: i64[B] = aten.arange.default(%b)\n%y: i64[] = aten.select.int(%n, 0, 1)": "BATCH",
        "%p: (f32[B, 2, 4], f32[B, S - 2, 4]) = aten.split_with_sizes.default(%x, [2, -1], 1)\n"
        "%y: f32[B, 2, 4] = py.getitem(%p, 0)": "MIXES",
        "%p: (f32[S, 4], f32[S, 4]) = aten.unbind.int(%x)\n%y: f32[S, 4] = py.getitem(%p, 0)": "MIXES",
        "%y: f32[B, S, 4] = aten.slice_scatter.default(%x, %x, 1)": "MIXES",
        "%n: int<S - 1> = py.sub(%s, 1)\n%y: f32[B, S, 8] = aten.slice_scatter.default(%x8, %x, 2, %n)": "MIXES",
        "%t: f32[B, 4] = aten.select.int(%ones4, 1, 0)\n%y: f32[B, S, 4] = aten.select_scatter.default(%x, %t, 1, 0)": (
            "MIXES"
        ),
    },
    "reduce": {
        "%y: f32[] = aten.mean.default(%x)": "MIXES",
        "%y: f32[B, 1, 4] = aten.mean.dim(%x, [1], True)": "MIXES",
        "%y: f32[B, 4] = aten.mean.dim(%x, [-2])": "MIXES",
        "%y: f32[1, S, 4] = aten.sum.dim_IntList(%x, [0], True)": "BATCH",
        "%y: f32[4] = aten.amax.default(%x, [0, 1])": "MIXES",
        "%y: f32[] = aten.max.default(%x)": "MIXES",
        "%y: f32[] = aten.var.default(%x, False)": "MIXES",
        "%y: f32[] = aten.linalg_vector_norm.default(%x)": "MIXES",
        "%y: f32[] = aten.norm.Scalar(%x, 2)": "MIXES",
        "%y: i64[] = aten.argmax.default(%x)": "MIXES",
        "%y: f32[B, S, 4] = aten.softmax.int(%x, 1)": "MIXES",
        "%y: f32[B, S, 4] = aten._log_softmax.default(%x, 0, False)": "BATCH",
        "%y: f32[B, S, 4] = aten.cumsum.default(%x, 1)": "MIXES",
        "%y: f32[B, S, 4] = aten.cumsum.default(%x, -2)": "MIXES",
        "%y: f32[B*S, 4] = aten.cumprod.default(%flat, 0)": "MIXES",
        "%y: f32[B, S, 4] = aten.layer_norm.default(%x, [%s, 4])": "MIXES",
        "%t: f32[B, 4, S] = aten.transpose.int(%x, 1, 2)\n%y: f32[B, 4, S] = aten.group_norm.default(%t, 2)": "MIXES",
        "%u: f32[B, S] = aten.squeeze.dim(%x1, 2)\n%p: (f32[B, 1], i64[B, 1]) = aten.topk.default(%u, 1)\n"
        "%y: f32[B, 1] = py.getitem(%p, 0)": "MIXES",
        "%p: (f32[B, S, 4], i64[B, S, 4]) = aten.sort.default(%x, 1)\n%y: f32[B, S, 4] = py.getitem(%p, 0)": "MIXES",
        "%y: i64[B, S, 4] = aten.argsort.default(%x, 0)": "BATCH",
        "%n: i64[B] = aten.arange.default(%b)\n%y: i64[] = aten.sum.default(%n)": "BATCH",
        "%z: f32[B, 1, 4] = aten.zeros.default([%b, 1, 4])\n"
        "%y: f32[B, S, 4] = aten.diff.default(%x, 1, 1, %z)": "MIXES",
        "%y: f32[S - 1] = aten.diff.default(%posf)": "MIXES",
    },
    "contract": {
        "%y: f32[B, S, B] = aten.linear.default(%x, %x)": "MIXES",
        "%t: f32[B, 4, S] = aten.transpose.int(%x, 1, 2)\n%y: f32[B, S, S] = aten.matmul.default(%x, %t)": "MIXES",
        "%t: f32[B, 4, S] = aten.transpose.int(%x, 1, 2)\n%y: f32[B, 4, 4] = aten.matmul.default(%t, %x)": "MIXES",
        "%t: f32[B, 4, S] = aten.transpose.int(%x, 1, 2)\n%y: f32[B, 4, 4] = aten.bmm.default(%t, %x)": "MIXES",
        "%y: f32[S, 4] = aten.mm.default(%grid, %ptab)": "MIXES",
        '%y: f32[B, 4] = aten.einsum.default("bsd->bd", [%x])': "MIXES",
        '%y: f32[B, S, S] = aten.einsum.default("bid,bjd->bij", [%x, %x])': "MIXES",
        '%y: f32[B, S, 4] = aten.einsum.default("ij,bjd->bid", [%grid, %x])': "MIXES",
        '%y: f32[B, S, 4] = aten.einsum.default("bsdd->bsd", [%square])': "NO-RULE",
        '%y: f32[B, S, 8] = aten.einsum.default("...d,ed->...e", [%x, %wide])': "NO-RULE",
        "%w: f32[4, 4, 1] = aten.unsqueeze.default(%weight, 2)\n%t: f32[B, 4, S] = aten.transpose.int(%x, 1, 2)\n"
        "%y: f32[B, 4, S] = aten.conv1d.default(%t, %w)": "MIXES",
        "%y: f32[B, S, 4] = aten.matmul.default(%grid, %x)": "MIXES",
        "%n: i64[B] = aten.arange.default(%b)\n%f: f32[B] = aten._to_copy.default(%n, dtype=dtype<float32>)\n"
        "%y: f32[] = aten.dot.default(%f, %f)": "MIXES",
        "%u: f32[4] = aten.expand.default(%total, [4])\n"
        "%y: f32[B*S, 4] = aten.addmm.default(%u, %flat, %weight)": "LENGTH",
        "%u: f32[4, 4] = aten.expand.default(%total, [4, 4])\n%y: f32[B, S, 4] = aten.matmul.default(%x, %u)": "LENGTH",
        "%u: f32[4, 4] = aten.expand.default(%total, [4, 4])\n%y: f32[B, S, 4] = aten.linear.default(%x, %u)": "MIXES",
        "%e: f32[B, 4, 4] = aten.expand.default(%weight, [%b, 4, 4])\n"
        "%y: f32[B, S, 4] = aten.baddbmm.default(%x, %x, %e, beta=%s)": "LENGTH",
    },
    "gather": {
        "%i: i64[S] = aten.floor_divide.default(%pos, 2)\n%y: f32[S, 4] = aten.index.Tensor(%ptab, [%i])": "MIXES",
        "%n: i64[B] = aten.arange.default(%b)\n%u: i64[B, 1] = aten.unsqueeze.default(%n, 1)\n"
        "%y: f32[B, S] = aten.index.Tensor(%own, [%u, %pos])": "BATCH",
        "%y: f32[B, S, S, 4] = aten.embedding.default(%x, %pos)": "MIXES",
        "%n: i64[B] = aten.arange.default(%b)\n%y: f32[B, 4] = aten.embedding.default(%table, %n)": "BATCH",
        "%y: f32[B, 2, 4] = aten.index_select.default(%x, 1, %two)": "MIXES",
        "%y: f32[2, S, 4] = aten.index_select.default(%x, 0, %two)": "MIXES",
        "%y: f32[B, 2, 4] = aten.index.Tensor(%x, [None, %two])": "MIXES",
        "%y: f32[B, S, 4] = aten.index.Tensor(%ptab, [%ids])": "MIXES",
        "%y: f32[S, S, 4] = aten.index.Tensor(%x, [%pos])": "MIXES",
        "%n: i64[B] = aten.arange.default(%b)\n%y: f32[B, 4] = aten.index.Tensor(%x, [%n, %zero])": "BATCH",
        "%y: f32[B, 2, 4] = aten.index.Tensor(%h, [None, %two, None, %two])": "MIXES",
        "%i: i64[1, 2, 1] = aten.view.default(%two, [1, 2, 1])\n"
        "%e: i64[B, 2, 4] = aten.expand.default(%i, [%b, 2, 4])\n"
        "%y: f32[B, 2, 4] = aten.gather.default(%x, 1, %e)": "MIXES",
        "%z: i64[B, S, 4] = aten.zeros.default([%b, %s, 4], dtype=dtype<int64>)\n"
        "%y: f32[B, S, 4] = aten.gather.default(%x, 1, %z)": "MIXES",
        "%z: i64[B, S, 4] = aten.zeros.default([%b, %s, 4], dtype=dtype<int64>)\n"
        "%y: f32[B, S, 4] = aten.gather.default(%x, 0, %z)": "MIXES",
        "%z: i64[B, S, 4] = aten.zeros.default([%b, %s, 4], dtype=dtype<int64>)\n"
        "%y: f32[B, S, 4] = aten.scatter.src(%x, 1, %z, %x)": "MIXES",
        "%z: i64[B, S, 4] = aten.zeros.default([%b, %s, 4], dtype=dtype<int64>)\n"
        "%y: f32[B, S, 4] = aten.scatter_add.default(%x, 0, %z, %x)": "MIXES",
        "%y: f32[B, S, 4] = aten.index_put.default(%x, [None, %pos], %x)": "MIXES",
        "%n: i64[B] = aten.arange.default(%b)\n%y: i64[B, 3] = aten.one_hot.default(%n, 3)": "BATCH",
    },
    "route": {
        "%f: f32[2*B*S] = aten._to_copy.default(%experts, dtype=dtype<float32>)\n"
        "%y: f32[4] = aten.histc.default(%f, 4, 0, 3)": "MIXES",
        ORDERED + "%y: f32[2*B*S, 4] = aten.index.Tensor(%in, [%order])": "MIXES",
        ORDERED + "%y: f32[2*B*S, 4] = aten.index.Tensor(%flat, [%sorted])": "MIXES",
        ORDERED + "%y: i64[2*B*S] = aten.mul.Tensor(%order, 2)": "MIXES",
        ORDERED
        + "%t: i64[2*B*S] = aten.floor_divide.default(%order, 4)\n%y: i64[2*B*S] = aten.neg.default(%t)": "MIXES",
        ORDERED + "%y: f32[2*B*S, 4] = aten.add.Tensor(%in, %rows)": "MIXES",
        ORDERED + "%y: i64[2*B*S, 4] = aten.one_hot.default(%sorted, 4)": "MIXES",
        ORDERED + "%y: f32[2*B*S, 4] = aten.cumsum.default(%in, 0)": "MIXES",
        ORDERED + "%y: f32[4] = aten.sum.dim_IntList(%in, [0])": "MIXES",
        ORDERED + "%y: f32[2*B*S - 1, 4] = aten.slice.Tensor(%in, 0, 1, 9223372036854775807)": "MIXES",
        ORDERED + COUNTED + "%y: f32[4] = aten.mul.Tensor(%count, 2)": "MIXES",
        ORDERED + COUNTED + "%y: b1[4] = aten.gt.Scalar(%count, 3)": "MIXES",
        ORDERED + COUNTED + "%y: f32[2*B*S, 4] = aten._grouped_mm.default(%in, %many, %count)": "MIXES",
        ORDERED + COUNTED + "%y: f32[B*S, 4] = aten._grouped_mm.default(%flat, %many, %ends)": "MIXES",
        ORDERED
        + COUNTED
        + "%b: i64[2*B*S] = aten.argsort.default(%other)\n%t: i64[2*B*S] = aten.floor_divide.default(%b, 2)\n"
        + "%r: f32[2*B*S, 4] = aten.index.Tensor(%flat, [%t])\n"
        + "%y: f32[2*B*S, 4] = aten._grouped_mm.default(%r, %many, %ends)": "MIXES",
        ORDERED
        + "%b: i64[2*B*S] = aten.argsort.default(%other)\n%t: i64[2*B*S] = aten.floor_divide.default(%b, 2)\n"
        + "%r: f32[2*B*S, 4] = aten.index.Tensor(%flat, [%t])\n"
        + "%y: f32[2*B*S, 4] = aten.add.Tensor(%r, %in)": "MIXES",
        ORDERED
        + "%b: i64[2*B*S] = aten.argsort.default(%other)\n%t: i64[2*B*S] = aten.floor_divide.default(%b, 2)\n"
        + "%out: f32[2*B*S, 4] = aten.index.Tensor(%flat, [%t])\n"
        + BACK: "MIXES",
        ORDERED + "%z: i64[2*B*S] = aten.zeros_like.default(%order)\n"
        "%y: i64[2*B*S] = aten.index_put.default(%base, [%order], %z)": "MIXES",
        ORDERED + "%y: i64[2*B*S] = aten.index_put.default(%base, [%order], %rows, True)": "MIXES",
        ORDERED + "%y: i64[2*B*S] = aten.argsort.default(%order)": "MIXES",
    },
    "attention": {
        "%f: f32[2] = aten.slice.Tensor(%vec, 0, 0, 2)\n%y: f32[B, S, 4] = "
        + ROPE.format("%x, [%late], [%f], []", "half"): "LENGTH",
        "%c: f32[S, 1] = aten.unsqueeze.default(%late, 1)\n%d: f32[S, 4] = aten.expand.default(%c, [%s, 4])\n"
        "%y: f32[B, S, 4] = " + ROPE.format("%x, [], [], [%d, %d]", "half"): "LENGTH",
    },
}
