"""An attention of a step: its formulas are those of the whole sequence, and its keys all tokens' or a buffer's."""

from __future__ import annotations

from dataclasses import dataclass

from attnc.compiler.derive.known import TOKEN_AXIS, Kind, Known
from attnc.compiler.derive.past.axes import ALL, EARLIER, PLACES, along
from attnc.compiler.derive.past.formulas import Shift, formulas
from attnc.compiler.derive.refusal import ATTENTION, CACHE, LENGTH
from attnc.compiler.derive.site import check_sizes, result_dims
from attnc.compiler.derive.step import Step
from attnc.compiler.planning.plan import axis_lengths
from attnc.ir import index as ix
from attnc.ir.attention import KEY, QUERY, AttentionSpec
from attnc.ir.mask import MaskSet


@dataclass(frozen=True)
class StepAttention:
    """One ``attn.attention`` of a graph with a past."""

    step: Step
    shift: Shift

    @property
    def spec(self) -> AttentionSpec:
        found: AttentionSpec = self.step.op.attrs["spec"]
        return found

    def known(self) -> Known:
        """What is known of its result. Raises NotDerivable."""
        q, k, v = operands = tuple(self.step.fact(value) for value in self.step.op.args[:3])
        self._check_axis("queries", q, self.spec.q_axes, QUERY, ((TOKEN_AXIS,),))
        keys = self._keys(k)
        self._check_axis("keys", k, self.spec.k_axes, KEY, (keys,))
        self._check_axis("values", v, self.spec.v_axes, KEY, (keys,))
        check_sizes(self.step)
        self._check_formulas()
        if keys != (ALL,):
            self._check_hidden()
        return Known(Kind.TOKEN, result_dims(self.step, self.spec, operands))

    def _keys(self, k: Known) -> tuple[int | str, ...]:
        """The axis of the keys: all tokens, or places of a buffer."""
        dim = k.dims[self.spec.k_axes.index(KEY)]
        if dim != (ALL,) and not (len(dim) == 1 and str(dim[0]).startswith(PLACES)):
            raise self.step.refuse(CACHE, "the keys are neither all tokens', earlier ones first, nor a buffer's")
        return dim

    def _check_axis(
        self, what: str, known: Known, axes: tuple[str, ...], own: str, wanted: tuple[tuple[int | str, ...], ...]
    ) -> None:
        if known.kind is Kind.LENGTH:
            raise self.step.refuse(LENGTH, f"the {what} know the number of new or of earlier tokens")
        for name, dim in zip(axes, known.dims, strict=True):
            if name == own and dim not in wanted:
                raise self.step.refuse(CACHE, f"the {what} don't stand for the tokens they should")
            if name != own and (along((dim,), TOKEN_AXIS) or along((dim,), ALL) or along((dim,), PLACES)):
                raise self.step.refuse(ATTENTION, f"axis {name} of the {what} is one of tokens")

    def _sides(self) -> dict[str, Known]:
        sides = self.step.op.args[3]
        assert isinstance(sides, tuple)
        return {f"t{number}": self.step.fact(value) for number, value in enumerate(sides)}

    def _check_formulas(self) -> None:
        """Raises NotDerivable where a formula isn't that of the whole sequence."""
        sides = self._sides()
        for number, known in sides.items():
            if known.kind is Kind.LENGTH or along(known.dims, EARLIER) or along(known.dims, PLACES):
                raise self.step.refuse(LENGTH, f"{number}, which the scores read, knows new tokens from earlier ones")
            if any(len(known.dims[d]) > 1 for d in along(known.dims, TOKEN_AXIS)):
                raise self.step.refuse(ATTENTION, f"{number}, which the scores read, merges tokens with other axes")

        def rows(name: str) -> tuple[int, ...]:
            return along(sides[name].dims, TOKEN_AXIS)

        query = ix.axis(QUERY)
        if not self.shift.agrees(self.spec.mask, (query,), rows):
            shown = ix.show(self.shift.absolute(self.spec.mask, (query,), rows))
            raise self.step.refuse(CACHE, f"the mask at absolute positions knows how many tokens came before: {shown}")
        if not all(self.shift.score_agrees(formula, rows) for formula in formulas(self.spec)):
            raise self.step.refuse(CACHE, "the scores at absolute positions know how many tokens came before")

    def _check_hidden(self) -> None:
        """Places of a buffer behind the query hold anything; the mask must hide them."""
        mask = self.shift.empty(self.spec.mask)
        lengths = axis_lengths(self.step.op)
        if not MaskSet.of(mask, {**lengths, QUERY: lengths[KEY]}).is_causal():
            raise self.step.refuse(CACHE, f"places of a buffer that may be empty are visible: {ix.show(mask)}")
