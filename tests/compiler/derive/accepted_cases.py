"""Ops that the rules accept, with what they must say of ``%y``. Values are those of ``worlds.INPUTS``."""

from __future__ import annotations

_FLOAT = """neg.default exp.default exp2.default log.default log2.default log1p.default sqrt.default rsqrt.default
    reciprocal.default tanh.default sigmoid.default silu.default gelu.default relu.default relu6.default elu.default
    leaky_relu.default erf.default cos.default sin.default abs.default square.default floor.default ceil.default
    round.default softplus.default hardtanh.default mish.default hardswish.default hardsigmoid.default sgn.default
    nan_to_num.default log_sigmoid.default logit.default expm1.default sign.default trunc.default clone.default
    alias.default detach.default contiguous.default lift_fresh_copy.default _neg_view.default resolve_neg.default
    resolve_conj.default"""
_TRUTH = "isnan.default isinf.default logical_not.default"
_COMPLEX = "conj.default _conj.default"
_PARTS = "real.default imag.default"
_PAIRS = """add.Tensor sub.Tensor mul.Tensor div.Tensor pow.Tensor_Tensor maximum.default minimum.default
    remainder.Tensor fmod.Tensor atan2.default copysign.Tensor xlogy.Tensor floor_divide.default rsub.Tensor max.other
    min.other type_as.default"""
_COMPARED = "le.Tensor lt.Tensor gt.Tensor ge.Tensor eq.Tensor ne.Tensor logical_and.default logical_or.default"
_LOGIC = "__and__.Tensor __or__.Tensor bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor"


def _pointwise() -> dict[str, str]:
    """One case for every operator that works place by place."""
    return {
        **{f"%y: f32[B, S, 4] = aten.{op}(%x)": "TOKEN B S 4" for op in _FLOAT.split()},
        **{f"%y: b1[B, S, 4] = aten.{op}(%x)": "TOKEN B S 4" for op in _TRUTH.split()},
        **{f"%y: c64[B, S, 2] = aten.{op}(%pair)": "TOKEN B S 2" for op in _COMPLEX.split()},
        **{f"%y: f32[B, S, 2] = aten.{op}(%pair)": "TOKEN B S 2" for op in _PARTS.split()},
        **{f"%y: f32[B, S, 4] = aten.{op}(%x, %ptab)": "TOKEN B S 4" for op in _PAIRS.split()},
        **{f"%y: b1[B, S, 4] = aten.{op}(%x, %vec)": "TOKEN B S 4" for op in _COMPARED.split()},
        **{f"%y: b1[B, S, 4] = aten.{op}(%hot, %hot)": "TOKEN B S 4" for op in _LOGIC.split()},
    }


POINTWISE = {
    **_pointwise(),
    "%y: b1[B, S, 4] = aten.bitwise_not.default(%hot)": "TOKEN B S 4",
    "%y: f32[B, S, 4] = aten.clamp.default(%x, -0.5, 0.5)": "TOKEN B S 4",
    "%y: f32[B, S, 4] = aten.clamp.Tensor(%x, min=%vec)": "TOKEN B S 4",
    "%y: f32[B, S, 4] = aten.clamp_min.default(%x, 0.1)": "TOKEN B S 4",
    "%y: f32[B, S, 4] = aten.clamp_max.default(%x, 0.1)": "TOKEN B S 4",
    "%y: f32[B, S, 4] = aten.where.self(%hot, %x, %ptab)": "TOKEN B S 4",
    "%y: f32[B, S, 4] = aten.where.ScalarOther(%hot, %x, 0.0)": "TOKEN B S 4",
    "%y: f32[B, S, 4] = aten.masked_fill.Scalar(%x, %hot, 0.5)": "TOKEN B S 4",
    "%y: f64[B, S, 4] = aten._to_copy.default(%x, dtype=dtype<float64>)": "TOKEN B S 4",
    "%y: f64[B, S, 4] = aten.to.dtype(%x, dtype<float64>)": "TOKEN B S 4",
    "%y: f32[S, 4] = aten.to.other(%ptab, %vec)": "POSITION S 4",
    "%y: f32[B, S, 4] = aten.rsub.Scalar(%x, 1)": "TOKEN B S 4",
    "%y: f32[B, S, 4] = aten.addcmul.default(%x, %x, %vec)": "TOKEN B S 4",
    "%y: f32[B, S, 4] = aten.addcdiv.default(%x, %x, %vec)": "TOKEN B S 4",
    "%y: f32[B, S, 4] = aten.lerp.Scalar(%x, %vec, 0.5)": "TOKEN B S 4",
    "%y: c64[S, 4] = aten.polar.default(%ptab, %vec)": "POSITION S 4",
    "%y: f32[B, S, 4] = aten.add.Tensor(%x, %vec, alpha=2)": "TOKEN B S 4",
    "%y: f32[B, S, 4] = aten.add.Tensor(%x, %line)": "TOKEN B S 4",
    "%y: f32[S, B, 4] = aten.mul.Tensor(%turned, %vec)": "TOKEN S B 4",
    "%y: f32[B, 3, S, 4] = aten.mul.Tensor(%h, %line)": "TOKEN B 3 S 4",
    "%y: f32[S, S] = aten.sub.Tensor(%line, %posf)": "POSITION S S",
    "%y: f32[S] = aten.div.Tensor(%posf, %s)": "LENGTH S",
    "%y: f32[S] = aten.mul.Tensor(%late, %posf)": "LENGTH S",
    "%y: f32[4] = aten.pow.Tensor_Scalar(%vec, %s)": "LENGTH 4",
    "%y: f32[B, E, 4] = aten.mul.Tensor(%encoded, %vec)": "REQUEST B E 4",
    "%y: f32[B, E, 4] = aten.mul.Tensor(%encoded, %e)": "REQUEST B E 4",
    "%y: f32[B, S, 4] = aten.ones_like.default(%x)": "UNIFORM B S 4",
    "%y: f32[B, S, 4] = aten.zeros_like.default(%x)": "UNIFORM B S 4",
    "%y: f32[B, S, 4] = aten.full_like.default(%x, 3)": "UNIFORM B S 4",
    "%z: f32[B, S, 4] = aten.empty_like.default(%x)\n%y: f32[B, S, 4] = aten.copy.default(%z, %x)": "TOKEN B S 4",
    "%z: f32[S, 4] = aten.empty.memory_format([%s, 4])\n%y: f32[S, 4] = aten.copy.default(%z, %line)": "POSITION S 4",
    "%y: f32[B, S, 4] = aten.dropout.default(%x, 0.5, False)": "TOKEN B S 4",
}

CREATE = {
    "%y: f32[B, S] = aten.zeros.default([%b, %s])": "UNIFORM B S",
    "%y: f32[S, 4] = aten.ones.default([%s, 4])": "UNIFORM S 4",
    "%y: f32[1, S] = aten.full.default([1, %s], -1.5)": "UNIFORM 1 S",
    "%y: i64[4] = aten.full.default([4], %s)": "LENGTH 4",
    "%y: f32[] = aten.scalar_tensor.default(-inf)": "UNIFORM",
    "%y: i64[] = aten.scalar_tensor.default(%b)": "LENGTH",
    "%y: f32[S] = aten.new_ones.default(%x, [%s])": "UNIFORM S",
    "%y: f32[B] = aten.new_zeros.default(%x, [%b])": "UNIFORM B",
    "%y: f32[2] = aten.new_full.default(%x, [2], 7.0)": "UNIFORM 2",
    "%y: f32[2] = aten.new_full.default(%x, [2], %s)": "LENGTH 2",
    "%z: f32[4] = aten.new_empty.default(%x, [4])\n%y: f32[4] = aten.copy.default(%z, %vec)": "UNIFORM 4",
    "%y: i64[S] = aten.arange.default(%s)": "POSITION S",
    "%y: i64[S] = aten.arange.start_step(0, %s, 1, dtype=dtype<int64>)": "POSITION S",
    "%n: int<S + 2> = py.add(%s, 2)\n%y: i64[S] = aten.arange.start(2, %n)": "POSITION S",
    "%n: int<2*S> = py.mul(%s, 2)\n%y: i64[S] = aten.arange.start_step(0, %n, 2)": "POSITION S",
    "%n: int<5 - S> = py.sub(5, %s)\n%y: i64[S] = aten.arange.start_step(5, %n, -1)": "POSITION S",
    "%y: i64[B] = aten.arange.default(%b)": "UNIFORM B BATCH_INDEX",
    "%n: int<B*S> = py.mul(%b, %s)\n%y: i64[B*S] = aten.arange.default(%n)": "UNIFORM R1 ROW_NUMBER",
    "%y: i64[7] = aten.arange.default(7)": "UNIFORM 7",
    "%n: int<2*S> = py.mul(%s, 2)\n%y: i64[S] = aten.arange.start(%s, %n)": "LENGTH S",
    "%n: int<B + 2> = py.add(%b, 2)\n%y: i64[B] = aten.arange.start(2, %n)": "LENGTH B",
    "%n: int<1 - S> = py.sub(1, %s)\n%y: i64[2*S - 1] = aten.arange.start(%n, %s)": "POSITION D",
    "%m: int<2*S> = py.mul(%s, 2)\n%n: int<2*S - 1> = py.sub(%m, 1)\n"
    "%y: i64[2*S - 1] = aten.arange.default(%n)": "LENGTH D",
    "%y: f32[4, 4] = aten.tril.default(%weight)": "UNIFORM 4 4",
    "%y: f32[B, S, 4, 4] = aten.triu.default(%square, 1)": "TOKEN B S 4 4",
    "%o: f32[S, S] = aten.ones.default([%s, %s])\n%y: f32[S, S] = aten.tril.default(%o)": "POSITION S S",
    "%o: f32[S, S] = aten.full.default([%s, %s], -inf)\n%y: f32[S, S] = aten.triu.default(%o, diagonal=1)": (
        "POSITION S S"
    ),
}

LAYOUT = {
    "%y: f32[B, S, 2, 2] = aten.view.default(%x, [%b, %s, 2, 2])": "TOKEN B S 2 2",
    "%y: f32[B*S, 4] = aten.view.default(%x, [-1, 4])": "TOKEN B.S 4",
    "%y: f32[B, S, 4] = aten._unsafe_view.default(%flat, [%b, %s, 4])": "TOKEN B S 4",
    "%t: f32[B, S, 3, 4] = aten.transpose.int(%h, 1, -2)\n%y: f32[B, S, 12] = aten.reshape.default(%t, [%b, -1, 12])": (
        "TOKEN B S 3.4"
    ),
    "%y: f32[3*B, S, 4] = aten.reshape.default(%h, [-1, %s, 4])": "TOKEN B.3 S 4",
    "%y: f32[4*B*S] = aten.flatten.using_ints(%x)": "TOKEN B.S.4",
    "%y: f32[B, S, 2, 4] = aten.unflatten.int(%x8, -1, [2, 4])": "TOKEN B S 2 4",
    "%y: f32[B*S, 4] = aten.view_as.default(%x, %flat)": "TOKEN B.S 4",
    "%y: f32[4, 8] = aten.view.default(%wide, [4, 8])": "UNIFORM 4 2.4",
    "%y: f32[S, B, 4] = aten.transpose.int(%x, 0, 1)": "TOKEN S B 4",
    "%y: f32[B, S, 3, 4] = aten.permute.default(%h, [0, 2, 1, -1])": "TOKEN B S 3 4",
    "%y: f32[4, S] = aten.t.default(%ptab)": "POSITION 4 S",
    "%y: f32[4, S, B] = aten.numpy_T.default(%x)": "TOKEN 4 S B",
    "%y: f32[B, 1, S, 4] = aten.unsqueeze.default(%x, 1)": "TOKEN B 1 S 4",
    "%y: f32[B, S, 4, 1] = aten.unsqueeze.default(%x, -1)": "TOKEN B S 4 1",
    "%y: f32[B, S] = aten.squeeze.dim(%x1, -1)": "TOKEN B S",
    "%u: f32[1, 16, 4] = aten.unsqueeze.default(%table, 0)\n%y: f32[16, 4] = aten.squeeze.default(%u)": "UNIFORM 16 4",
    "%u: f32[B, S, 1, 1] = aten.unsqueeze.default(%x1, 2)\n%y: f32[B, S] = aten.squeeze.dims(%u, [2, 3])": "TOKEN B S",
    "%y: f32[B, S, 4] = aten.expand.default(%x1, [-1, -1, 4])": "TOKEN B S 4",
    "%y: f32[B, S, 4] = aten.expand.default(%ptab, [%b, %s, 4])": "POSITION B S 4",
    "%y: f32[S, 4] = aten.expand.default(%vec, [%s, 4])": "UNIFORM S 4",
    "%u: f32[S, 1] = aten.unsqueeze.default(%posf, 1)\n%y: f32[S, S] = aten.expand.default(%u, [%s, %s])": (
        "POSITION S S"
    ),
    "%y: f32[B, S, 8] = aten.repeat.default(%x, [1, 1, 2])": "TOKEN B S 2.4",
    "%y: f32[B, S, 4] = aten.repeat.default(%ptab, [%b, 1, 1])": "POSITION B S 4",
    "%y: f32[B*S] = aten.repeat.default(%posf, [%b])": "POSITION B.S",
    "%y: f32[4*S] = aten.repeat.default(%posf, [4])": "POSITION 4.S",
    "%y: f32[4*S] = aten.repeat.default(%vec, [%s])": "UNIFORM S.4",
    "%y: f32[B, 6, S, 4] = aten.repeat_interleave.self_int(%h, 2, 1)": "TOKEN B 3.2 S 4",
    "%y: f32[2*B, S] = aten.repeat_interleave.self_int(%own, 2, dim=0)": "POSITION B.2 S",
    "%y: f32[B, S, 8] = aten.cat.default([%x, %x], -1)": "TOKEN B S 8",
    "%u: f32[B, S, 4] = aten.expand.default(%ptab, [%b, %s, 4])\n%y: f32[B, S, 8] = aten.cat.default([%x, %u], 2)": (
        "TOKEN B S 8"
    ),
    "%y: f32[B, S, 4, 2] = aten.stack.default([%x, %x], -1)": "TOKEN B S 4 2",
    "%y: f32[2, S, 4] = aten.stack.default([%ptab, %ptab])": "POSITION 2 S 4",
    "%y: f32[B, S, 4] = aten.flip.default(%x, [-1])": "TOKEN B S 4",
    "%y: f32[B, S, 4] = aten.roll.default(%x, [1], [2])": "TOKEN B S 4",
    "%y: f32[16, 4] = aten.roll.default(%table, [3])": "UNIFORM 16 4",
    "%y: f32[B, S, 7] = aten.constant_pad_nd.default(%x, [1, 2], 0.5)": "TOKEN B S 7",
    "%y: f32[B, S, 2] = aten.constant_pad_nd.default(%x, [-1, -1, 0, 0])": "TOKEN B S 2",
    '%y: f32[B, S, 6] = aten.pad.default(%x, [1, 1], "reflect")': "TOKEN B S 6",
    "%u: f32[B, S, 2, 2] = aten.view.default(%x, [%b, %s, 2, 2])\n"
    "%y: c64[B, S, 2] = aten.view_as_complex.default(%u)": ("TOKEN B S 2"),
    "%y: f32[B, S, 2, 2] = aten.view_as_real.default(%pair)": "TOKEN B S 2 2",
}

SELECTING = {
    "%y: f32[B, S, 2] = aten.slice.Tensor(%x, -1, 1, 3)": "TOKEN B S 2",
    "%y: f32[B, S, 2] = aten.slice.Tensor(%x, 2, 0, 9223372036854775807, 2)": "TOKEN B S 2",
    "%y: f32[B, S, 2] = aten.slice.Tensor(%x, 2, -2)": "TOKEN B S 2",
    "%y: f32[B, S, 4] = aten.slice.Tensor(%x, 1, 0, 9223372036854775807)": "TOKEN B S 4",
    "%y: f32[B, S, 4] = aten.slice.Tensor(%x, 1, 0, %s)": "TOKEN B S 4",
    "%y: f32[B, S, 4] = aten.slice.Tensor(%x)": "TOKEN B S 4",
    "%y: f32[2, 4] = aten.slice.Tensor(%ptab, 0, 1, 3)": "POSITION 2 4",
    "%y: f32[S] = aten.slice.Tensor(%long, 0, 0, %s)": "POSITION S",
    "%n: int<2*S> = py.mul(%s, 2)\n%y: f32[S] = aten.slice.Tensor(%long, 0, 0, %n, 2)": "POSITION S",
    "%y: f32[S, S] = aten.slice.Tensor(%rows, 0, 0, %s)": "POSITION S S",
    "%n: int<64 - S> = py.sub(64, %s)\n%y: f32[S] = aten.slice.Tensor(%long, 0, %n, 64)": "LENGTH S SUFFIX",
    "%n: int<S + 2> = py.add(%s, 2)\n%y: f32[S] = aten.slice.Tensor(%long, 0, 2, %n)": "LENGTH S",
    "%y: f32[B, S] = aten.select.int(%x, -1, -1)": "TOKEN B S",
    "%y: f32[4] = aten.select.int(%ptab, 0, 2)": "POSITION 4",
    "%y: f32[S] = aten.select.int(%ones, 0, -1)": "UNIFORM S",
    "%y: f32[4] = aten.select.int(%table, 0, %s)": "LENGTH 4",
    "%n: int<S - 1> = py.sub(%s, 1)\n%y: f32[4] = aten.select.int(%ptab, 0, %n)": "LENGTH 4",
    **{
        f"%p: (f32[B, S, 2], f32[B, S, 2]) = {call}\n%y: f32[B, S, 2] = py.getitem(%p, 1)": "TOKEN B S 2"
        for call in (
            "aten.split.Tensor(%x, 2, -1)",
            "aten.split_with_sizes.default(%x, [2, 2], 2)",
            "aten.chunk.default(%x, 2, -1)",
            "aten.tensor_split.sections(%x, 2, dim=-1)",
        )
    },
    "%p: (f32[B, S, 1], f32[B, S, 3]) = aten.split_with_sizes.default(%x, [1, 3], -1)\n"
    "%y: f32[B, S, 3] = py.getitem(%p, 1)": "TOKEN B S 3",
    "%p: (f32[B, S, 4], f32[B, S, 4], f32[B, S, 4]) = aten.unbind.int(%h, 1)\n"
    "%y: f32[B, S, 4] = py.getitem(%p, -1)": "TOKEN B S 4",
    "%y: f32[B, S, 8] = aten.slice_scatter.default(%x8, %x, -1, 2, 6)": "TOKEN B S 8",
    "%u: f32[B, S, 4] = aten.expand.default(%ptab, [%b, %s, 4])\n"
    "%y: f32[B, S, 4] = aten.slice_scatter.default(%u, %x, 2)": "TOKEN B S 4",
    "%u: f32[B, S] = aten.squeeze.dim(%x1, 2)\n%y: f32[B, S, 8] = aten.select_scatter.default(%x8, %u, -1, 3)": (
        "TOKEN B S 8"
    ),
}

_TWO = "%y: {t} = py.getitem(%p, {i})"
REDUCE = {
    "%y: f32[B, S, 4] = aten.softmax.int(%x, -1, dtype<float32>)": "TOKEN B S 4",
    **{f"%y: f32[B, S, 4] = aten.{name}.default(%x, 2, False)": "TOKEN B S 4" for name in ("_softmax", "_log_softmax")},
    "%y: f32[B, S, 4] = aten.log_softmax.int(%x, -1)": "TOKEN B S 4",
    "%y: f32[B, S, 4] = aten._safe_softmax.default(%x, -1)": "TOKEN B S 4",
    **{
        f"%y: f32[B, S, 4] = aten.{name}.default(%x, -1)": "TOKEN B S 4"
        for name in ("cumsum", "cumprod", "logcumsumexp")
    },
    "%y: f32[S] = aten.softmax.int(%posf, 0)": "LENGTH S",
    "%y: i64[S] = aten.cumsum.default(%pos, -1)": "POSITION S",
    "%y: f32[B, S] = aten.cumsum.default(%ones, 1)": "POSITION B S",
    "%y: f32[B, S] = aten.cumsum.default(%ones, 0)": "LENGTH B S",
    "%y: f32[S, S] = aten.cumprod.default(%grid, 0)": "POSITION S S",
    "%y: f32[S] = aten.cumsum.default(%late, 0)": "LENGTH S",
    "%y: f32[B, S, 1] = aten.mean.dim(%x, [-1], True)": "TOKEN B S 1",
    "%y: f32[B, S] = aten.sum.dim_IntList(%x, [2])": "TOKEN B S",
    "%y: f32[B, S] = aten.amax.default(%x, [-1])": "TOKEN B S",
    "%y: f32[B, S, 1] = aten.amin.default(%x, [-1], keepdim=True)": "TOKEN B S 1",
    "%y: b1[B, S] = aten.any.dim(%hot, -1)": "TOKEN B S",
    "%y: b1[B, S, 1] = aten.all.dim(%hot, 2, True)": "TOKEN B S 1",
    "%y: f32[B, S] = aten.var.correction(%x, [2], correction=0)": "TOKEN B S",
    "%y: f32[B, S, 1] = aten.var.dim(%x, [-1], False, True)": "TOKEN B S 1",
    "%y: f32[] = aten.var.default(%vec, False)": "UNIFORM",
    "%y: f32[B, S, 1] = aten.std.correction(%x, [-1], correction=1, keepdim=True)": "TOKEN B S 1",
    "%y: f32[B, S] = aten.prod.dim_int(%x, -1)": "TOKEN B S",
    "%y: f32[B, S] = aten.logsumexp.default(%x, [-1])": "TOKEN B S",
    "%y: i64[B, S] = aten.argmax.default(%x, -1)": "TOKEN B S",
    "%y: i64[B, S, 1] = aten.argmin.default(%x, 2, True)": "TOKEN B S 1",
    "%y: i64[] = aten.argmax.default(%table)": "UNIFORM",
    "%y: f32[B, S] = aten.linalg_vector_norm.default(%x, 2, [-1])": "TOKEN B S",
    "%y: f32[B, S, 1] = aten.norm.ScalarOpt_dim(%x, 2, [-1], True)": "TOKEN B S 1",
    **{
        f"%p: (f32[B, S], f32[B, S]) = aten.{op}.correction(%x, [-1], correction=0)\n"
        + _TWO.format(t="f32[B, S]", i=i): "TOKEN B S"
        for op, i in (("var_mean", 1), ("std_mean", 0))
    },
    **{
        f"%p: (f32[B, S], i64[B, S]) = aten.{op}.dim(%x, -1)\n" + _TWO.format(t=t, i=i): "TOKEN B S"
        for op in ("max", "min", "median")
        for t, i in (("f32[B, S]", 0), ("i64[B, S]", 1))
    },
    "%y: i64[B, S] = aten.count_nonzero.dim_IntList(%x, [-1])": "TOKEN B S",
    "%y: f32[B, S] = aten.nansum.default(%x, [-1])": "TOKEN B S",
    "%y: f32[] = aten.sum.default(%posf)": "LENGTH",
    "%y: f32[B, 4] = aten.mean.dim(%encoded, [1])": "REQUEST B 4",
    "%y: f32[B, S, 3] = aten.diff.default(%x)": "TOKEN B S 3",
    "%y: f32[4] = aten.mean.dim(%ptab, [0])": "LENGTH 4",
    "%y: f32[B] = aten.sum.dim_IntList(%ones, [1])": "LENGTH B",
    "%y: f32[B*S] = aten.sum.dim_IntList(%flat, [1])": "TOKEN B.S",
    "%y: f32[S, B, 1] = aten.mean.dim(%turned, [-1], True)": "TOKEN S B 1",
    "%y: f32[B, S, 4] = aten.layer_norm.default(%x, [4], %vec, %vec, 1e-05)": "TOKEN B S 4",
    "%y: f32[B, S, 4, 4] = aten.layer_norm.default(%square, [4, 4], %weight)": "TOKEN B S 4 4",
    "%y: f32[B, S, 4] = aten.rms_norm.default(%x, [4], %vec, 1e-06)": "TOKEN B S 4",
    "%p: (f32[B, S, 4], f32[B, S, 1], f32[B, S, 1]) = aten.native_layer_norm.default(%x, [4], %vec, %vec, 1e-05)\n"
    "%y: f32[B, S, 1] = py.getitem(%p, 1)": "TOKEN B S 1",
    "%p: (f32[B, S, 4], f32[B, S, 1]) = aten._fused_rms_norm.default(%x, [4], %vec, 1e-06)\n"
    "%y: f32[B, S, 1] = py.getitem(%p, 1)": "TOKEN B S 1",
    "%y: f32[B*S, 4] = aten.group_norm.default(%flat, 2, %vec, %vec)": "TOKEN B.S 4",
    **{
        "%p: (f32[B, S, 2], i64[B, S, 2]) = aten.topk.default(%x, 2)\n" + _TWO.format(t=t, i=i): "TOKEN B S 2"
        for t, i in (("f32[B, S, 2]", 0), ("i64[B, S, 2]", 1))
    },
    "%p: (f32[B, 2, S, 4], i64[B, 2, S, 4]) = aten.topk.default(%h, 2, 1, True, False)\n"
    "%y: f32[B, 2, S, 4] = py.getitem(%p, 0)": "TOKEN B 2 S 4",
    "%p: (f32[B, S, 4], i64[B, S, 4]) = aten.sort.default(%x, -1, True)\n%y: i64[B, S, 4] = py.getitem(%p, 1)": (
        "TOKEN B S 4"
    ),
    "%p: (f32[B, 3, S, 4], i64[B, 3, S, 4]) = aten.sort.stable(%h, stable=True, dim=1)\n"
    "%y: f32[B, 3, S, 4] = py.getitem(%p, 0)": "TOKEN B 3 S 4",
    "%y: i64[B, S, 4] = aten.argsort.default(%x, descending=True)": "TOKEN B S 4",
    "%z: i64[1] = aten.zeros.default([1], dtype=dtype<int64>)\n%y: i64[S] = aten.diff.default(%pos, 1, -1, %z)": (
        "POSITION S"
    ),
}

CONTRACT = {
    "%y: f32[B, S, 8] = aten.linear.default(%x, %wide)": "TOKEN B S 8",
    "%y: f32[B, S, 4] = aten.linear.default(%x, %weight, %vec)": "TOKEN B S 4",
    "%y: f32[B, S, 4] = aten.matmul.default(%x, %weight)": "TOKEN B S 4",
    "%y: f32[B, S] = aten.matmul.default(%x, %vec)": "TOKEN B S",
    "%y: f32[B, S, 4] = aten.matmul.default(%vec, %square)": "TOKEN B S 4",
    "%y: f32[B, S, 4, 4] = aten.matmul.default(%square, %square)": "TOKEN B S 4 4",
    "%y: f32[B, 3, S, 4] = aten.matmul.default(%h, %weight)": "TOKEN B 3 S 4",
    "%y: f32[S, 4] = aten.matmul.default(%ptab, %weight)": "POSITION S 4",
    "%t: f32[1, S] = aten.unsqueeze.default(%posf, 0)\n%y: f32[S, S] = aten.matmul.default(%line, %t)": "POSITION S S",
    "%y: f32[B*S, 4] = aten.mm.default(%flat, %weight)": "TOKEN B.S 4",
    "%e: f32[B, 4, 4] = aten.expand.default(%weight, [%b, 4, 4])\n%y: f32[B, S, 4] = aten.bmm.default(%x, %e)": (
        "TOKEN B S 4"
    ),
    "%e: f32[B, 4, 4] = aten.expand.default(%weight, [%b, 4, 4])\n"
    "%y: f32[B, S, 4] = aten.baddbmm.default(%x, %x, %e, beta=2)": "TOKEN B S 4",
    "%e: f32[B, 4, 4] = aten.expand.default(%weight, [%b, 4, 4])\n"
    "%l: f32[1, S, 1] = aten.unsqueeze.default(%line, 0)\n"
    "%y: f32[B, S, 4] = aten.baddbmm.default(%l, %x, %e)": "TOKEN B S 4",
    "%y: f32[B*S] = aten.mv.default(%flat, %vec)": "TOKEN B.S",
    '%y: f32[B, S, 8] = aten.einsum.default("bsd,ed->bse", [%x, %wide])': "TOKEN B S 8",
    '%y: f32[B, 3, S] = aten.einsum.default("bhsd, d -> bhs", [%h, %vec])': "TOKEN B 3 S",
    '%y: f32[S, S] = aten.einsum.default("i,j->ij", [%posf, %posf])': "POSITION S S",
    "%w: f32[4, E, 1] = aten.ones.default([4, %e, 1])\n%y: f32[B, 4, 4] = aten.conv1d.default(%encoded, %w)": (
        "REQUEST B 4 4"
    ),
    "%u: f32[B, 1, E, 4] = aten.unsqueeze.default(%encoded, 1)\n%w: f32[2, 1, 1, 1] = aten.ones.default([2, 1, 1, 1])\n"
    "%y: f32[B, 2, E, 4] = aten.conv2d.default(%u, %w)": "REQUEST B 2 E 4",
    "%w: f32[2, 4, 1] = aten.ones.default([2, 4, 1])\n%t: f32[B, 4, E] = aten.transpose.int(%encoded, 1, 2)\n"
    "%y: f32[B, 2, E] = aten.convolution.default(%t, %w, None, [1], [0], [1], False, [0], 1)": "REQUEST B 2 E",
    "%y: f32[] = aten.dot.default(%vec, %vec)": "UNIFORM",
    "%y: f32[B*S, 4] = aten.addmm.default(%vec, %flat, %weight)": "TOKEN B.S 4",
    "%y: f32[S, 4] = aten.addmm.default(%line, %ptab, %weight, alpha=2)": "POSITION S 4",
}

GATHER = {
    "%y: f32[B, S, 4] = aten.embedding.default(%table, %ids)": "TOKEN B S 4",
    "%y: f32[S, 4] = aten.embedding.default(%table, %pos, 0)": "POSITION S 4",
    "%i: i64[2*S - 1] = aten.clamp.default(%far, 0, 3)\n%y: f32[2*S - 1, 4] = aten.embedding.default(%wide, %i)": (
        "POSITION D 4"
    ),
    "%y: f32[B, S, 2] = aten.index_select.default(%x, -1, %two)": "TOKEN B S 2",
    "%i: i64[B*S] = aten.view.default(%ids, [-1])\n%y: f32[B*S, 4] = aten.index_select.default(%table, 0, %i)": (
        "TOKEN B.S 4"
    ),
    "%y: f32[B, S, 4] = aten.index.Tensor(%table, [%ids])": "TOKEN B S 4",
    "%y: f32[B, S, 2] = aten.index.Tensor(%x, [None, None, %two])": "TOKEN B S 2",
    "%y: f32[B, 2, S, 4] = aten.index.Tensor(%h, [None, %two])": "TOKEN B 2 S 4",
    "%y: f32[S, 4] = aten.index.Tensor(%table, [%pos])": "POSITION S 4",
    "%y: f32[B, S] = aten.index.Tensor(%table, [%ids, %zero])": "TOKEN B S",
    "%y: f32[B, S, 2] = aten.gather.default(%x, -1, %pick)": "TOKEN B S 2",
    "%u: f32[B, S, 4] = aten.expand.default(%ptab, [%b, %s, 4])\n"
    "%y: f32[B, S, 2] = aten.gather.default(%u, 2, %pick)": ("TOKEN B S 2"),
    "%y: f32[B, S, 4] = aten.scatter.value(%x, -1, %pick, 0.25)": "TOKEN B S 4",
    "%v: f32[B, S, 2] = aten.slice.Tensor(%x, 2, 0, 2)\n%y: f32[B, S, 4] = aten.scatter.src(%ones4, 2, %pick, %v)": (
        "TOKEN B S 4"
    ),
    "%v: f32[B, S, 2] = aten.slice.Tensor(%x, 2, 0, 2)\n"
    "%y: f32[B, S, 4] = aten.scatter_add.default(%ones4, -1, %pick, %v)": "TOKEN B S 4",
    "%v: f32[B, S, 2] = aten.slice.Tensor(%x, 2, 0, 2)\n"
    '%y: f32[B, S, 4] = aten.scatter_reduce.two(%ones4, 2, %pick, %v, "sum")': "TOKEN B S 4",
    "%y: f32[4] = aten.scatter.value(%vec, 0, %two, 1.5)": "UNIFORM 4",
    "%y: i64[B, S, 6] = aten.one_hot.default(%ids, 6)": "TOKEN B S 6",
}

ORDERED = """\
%a: (i64[2*B*S], i64[2*B*S]) = aten.sort.default(%experts)
%sorted: i64[2*B*S] = py.getitem(%a, 0)
%order: i64[2*B*S] = py.getitem(%a, 1)
%tokens: i64[2*B*S] = aten.floor_divide.default(%order, 2)
%in: f32[2*B*S, 4] = aten.index.Tensor(%flat, [%tokens])
%base: i64[2*B*S] = aten.empty_like.default(%order)
%n: int<2*B*S> = aten.sym_size.int(%order, 0)
%rows: i64[2*B*S] = aten.arange.default(%n)
%inverse: i64[2*B*S] = aten.index_put.default(%base, [%order], %rows)
"""
"""The way into an order by expert, and the order's inverse."""
COUNTED = """\
%f: f32[2*B*S] = aten._to_copy.default(%sorted, dtype=dtype<float32>)
%count: f32[4] = aten.histc.default(%f, 4, 0, 3)
%ends: i32[4] = aten.cumsum.default(%count, 0, dtype=dtype<int32>)
"""
BACK = "%y: f32[2*B*S, 4] = aten.index.Tensor(%out, [%inverse])"
ROUTE = {
    ORDERED + "%out: f32[2*B*S, 4] = aten.mul.Tensor(%in, %vec)\n" + BACK: "TOKEN B.S.2 4",
    ORDERED + COUNTED + "%out: f32[2*B*S, 4] = aten._grouped_mm.default(%in, %many, %ends)\n" + BACK: "TOKEN B.S.2 4",
    ORDERED
    + "%bias: f32[2*B*S, 4] = aten.index.Tensor(%weight, [%sorted])\n"
    + "%out: f32[2*B*S, 4] = aten.add.Tensor(%in, %bias)\n"
    + BACK: "TOKEN B.S.2 4",
    ORDERED.replace(
        "%a: (i64[2*B*S], i64[2*B*S]) = aten.sort.default(%experts)",
        "%order: i64[2*B*S] = aten.argsort.stable(%experts, stable=True)",
    ).replace("%sorted: i64[2*B*S] = py.getitem(%a, 0)\n%order: i64[2*B*S] = py.getitem(%a, 1)\n", "")
    + "%p: f32[B, S, 2] = aten.slice.Tensor(%x, 2, 0, 2)\n"
    + "%q: f32[2*B*S] = aten.reshape.default(%p, [-1])\n"
    + "%g: f32[2*B*S] = aten.index.Tensor(%q, [%order])\n"
    + "%u: f32[2*B*S, 1] = aten.unsqueeze.default(%g, 1)\n"
    + "%out: f32[2*B*S, 4] = aten.mul.Tensor(%in, %u)\n"
    + BACK: "TOKEN B.S.2 4",
}

ROPE = 'attn.rope({}) {{style = "{}", rotary_dim = 4, attention_factor = 1.0, rounded = False}}'
ATTENTION = {
    "%f: f32[2] = aten.slice.Tensor(%vec, 0, 0, 2)\n%y: f32[B, S, 4] = "
    + ROPE.format("%x, [%pos], [%f], []", "half"): "TOKEN B S 4",
    "%f: f32[2] = aten.slice.Tensor(%vec, 0, 0, 2)\n%y: f32[B, 3, S, 4] = "
    + ROPE.format("%h, [%pos], [%f], []", "interleaved"): "TOKEN B 3 S 4",
    "%c: f32[S, 4] = aten.cos.default(%ptab)\n%n: f32[S, 4] = aten.sin.default(%ptab)\n%y: f32[B, S, 4] = "
    + ROPE.format("%x, [], [], [%c, %n]", "half"): "TOKEN B S 4",
}

FAMILIES: dict[str, dict[str, str]] = {
    "pointwise": POINTWISE,
    "create": CREATE,
    "layout": LAYOUT,
    "selecting": SELECTING,
    "reduce": REDUCE,
    "contract": CONTRACT,
    "gather": GATHER,
    "route": ROUTE,
    "attention": ATTENTION,
}
