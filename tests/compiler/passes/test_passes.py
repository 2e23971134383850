"""Passes on graphs in text form: input beside expected output."""

from __future__ import annotations

import textwrap

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnc.compiler.frontends.torch import import_graph
from attnc.compiler.passes.base import Context, Pass
from attnc.compiler.passes.canonicalize import Canonicalize
from attnc.compiler.passes.clean_up import CleanUp
from attnc.compiler.passes.fold_layout import FoldLayout
from attnc.compiler.passes.fuse_attention import FuseAttention
from attnc.compiler.passes.pipeline import PIPELINE, passes_by_name, run_pipeline
from attnc.ir import parse_graph, print_graph, verify
from benchmarks.cases.spellings import CASES, Case


def after(step: Pass, text: str) -> str:
    graph = parse_graph(textwrap.dedent(text))
    verify(graph)
    step.run(graph, Context())
    verify(graph)
    return print_graph(graph)


def same(actual: str, expected: str) -> None:
    assert actual == print_graph(parse_graph(textwrap.dedent(expected)))


def test_canonicalize_drops_dropout_that_drops_nothing() -> None:
    same(
        after(
            Canonicalize(),
            """
            graph @g(%x: f32[4]) {
              %a: f32[4] = aten.dropout.default(%x, 0.5, False)
              %b: f32[4] = aten.dropout.default(%a, 0.0, True)
              %c: f32[4] = aten.neg.default(%b)
              return %c
            }
            """,
        ),
        """
        graph @g(%x: f32[4]) {
          %c: f32[4] = aten.neg.default(%x)
          return %c
        }
        """,
    )


def test_canonicalize_keeps_dropout_in_training() -> None:
    text = """
    graph @g(%x: f32[4]) {
      %a: f32[4] = aten.dropout.default(%x, 0.5, True)
      return %a
    }
    """
    same(after(Canonicalize(), text), text)


def test_clean_up_keeps_random_draws_and_writes() -> None:
    same(
        after(
            CleanUp(),
            """
            graph @g(%x: f32[4], %y: f32[4]) {
              %a: f32[4] = aten.neg.default(%x)
              %b: f32[4] = aten.rand_like.default(%x)
              %c: f32[4] = aten.copy_.default(%y, %x)
              return %x
            }
            """,
        ),
        """
        graph @g(%x: f32[4], %y: f32[4]) {
          %b: f32[4] = aten.rand_like.default(%x)
          %c: f32[4] = aten.copy_.default(%y, %x)
          return %x
        }
        """,
    )


def test_fold_layout_drops_permutations_that_undo_each_other() -> None:
    same(
        after(
            FoldLayout(),
            """
            graph @g(%x: f32[2, 3, 4]) {
              %a: f32[4, 2, 3] strides(1, 12, 4) = aten.permute.default(%x, [2, 0, 1])
              %b: f32[2, 3, 4] = aten.permute.default(%a, [1, 2, 0])
              return %b
            }
            """,
        ),
        """
        graph @g(%x: f32[2, 3, 4]) {
          return %x
        }
        """,
    )


def test_fold_layout_keeps_other_permutations_and_copies() -> None:
    text = """
    graph @g(%x: f32[2, 3, 4]) {
      %a: f32[4, 2, 3] strides(1, 12, 4) = aten.permute.default(%x, [2, 0, 1])
      %b: f32[3, 4, 2] strides(4, 1, 12) = aten.permute.default(%a, [2, 0, 1])
      %c: f32[3, 4, 2] = aten.clone.default(%b, memory_format=memory_format<contiguous_format>)
      return %c
    }
    """
    same(after(FoldLayout(), text), text)


ATTENTION = """
graph @g(%q: f32[B, 4, S, 16], %k: f32[B, 2, S, 16], %v: f32[B, 2, S, 16], %m: i64[B, S])
    sizes(B in [1, inf], S in [1, inf]) {
  %r: f32[B, 4, S, 16] = aten.repeat_interleave.self_int(%k, 2, 1)
  %w: f32[B, 4, S, 16] = aten.repeat_interleave.self_int(%v, 2, 1)
  %t: f32[B, 4, 16, S] strides(64*S, 16*S, 1, 16) = aten.transpose.int(%r, 2, 3)
  %s: f32[B, 4, S, S] = aten.matmul.default(%q, %t)
  %c: f32[B, 4, S, S] = aten.mul.Tensor(%s, 0.25)
  %e: b1[B, S] = aten.ne.Scalar(%m, 0)
  %u: b1[B, 1, 1, S] = aten.view.default(%e, [-1, 1, 1, 64])
  %f: f32[B, 4, S, S] = aten.where.ScalarOther(%u, %c, -inf)
  %p: f32[B, 4, S, S] = aten.softmax.int(%f, -1)
  %o: f32[B, 4, S, 16] = aten.matmul.default(%p, %w)
  %x: f32[B, S, 4, 16] strides(64*S, 16, 16*S, 1) = aten.transpose.int(%o, 1, 2)
  %z: f32[B, S, 4, 16] = aten.clone.default(%x, memory_format=memory_format<contiguous_format>)
  return %z
}
"""


def test_fuse_reads_grouped_heads_padding_and_the_order_of_the_result() -> None:
    graph = parse_graph(ATTENTION.replace("64]", "8]").replace("S]", "8]").replace("S,", "8,").replace("*S", "*8"))
    context = Context()
    run_pipeline(
        graph, context, passes=passes_by_name(["canonicalize", "fuse-attention", "clean-up", "fold-layout"]), check=True
    )
    text = print_graph(graph)
    assert "q = [b, h, g, q, d], k = [b, h, k, d], v = [b, h, k, e], out = [b, q, h, g, e]" in text
    assert "mask = t0[b, k] != 0" in text and "visible = qk * 0.25" in text and "fill = minus_inf" in text
    assert "repeat_interleave" not in text and "clone" not in text and "softmax.int" not in text
    (site,) = context.sites
    assert site.kind == "GQA(2)" and site.mask == "m[b, k] != 0"


def test_unknown_pass_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no pass 'fuse'; passes are canonicalize, distribute, fuse-attention"):
        passes_by_name(["fuse"])


@settings(max_examples=12)
@given(st.sampled_from(CASES))
def test_the_pipeline_is_idempotent(case: Case) -> None:
    """A second run finds nothing left to do: the text stays the same."""
    module = torch.export.export(_Module(case), case.inputs(), strict=False).run_decompositions({}).graph_module
    graph = import_graph(module)
    steps = tuple(step for step in PIPELINE if step.name != "choose-strategy")
    run_pipeline(graph, Context(), passes=steps, check=True)
    once = print_graph(graph)
    again = Context()
    run_pipeline(graph, again, passes=steps, check=True)
    assert print_graph(graph) == once
    assert not any(site.fused for site in again.sites)


def test_fuse_alone_is_idempotent() -> None:
    graph = parse_graph(ATTENTION.replace("64]", "8]").replace("S]", "8]").replace("S,", "8,").replace("*S", "*8"))
    assert FuseAttention().run(graph, Context())
    CleanUp().run(graph, Context())
    assert not FuseAttention().run(graph, Context())


class _Module(torch.nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return self.case.run(q, k, v)
