"""ONNX's own node tests: nothing the forms answer is wrong, and most is answered by them."""

from __future__ import annotations

import pytest

from benchmarks import onnx_suite

PARTS = 4
OTHERWISE_ROUNDED = {
    "test_attention_4d_fp16": "torch's float16 attention rounds its weights",
    "test_attention_4d_causal_fp16": "torch's float16 attention rounds its weights",
    "test_attention_4d_causal_fp16_expanded": "op by op every result is rounded to float16",
    "test_dft_inverse_opset19": "the expected result has 1.9e-7 where the number is 0, with a tolerance of 1e-7",
}
"""Cases whose tolerance is finer than the type; the attentions are right in attnc's own kernels, in float32."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_part(part: int) -> None:
    chosen = onnx_suite.names(part, PARTS)
    ours, theirs = onnx_suite.judge(chosen), onnx_suite.peers(part, PARTS)
    wrong = {name: outcome.detail for name, outcome in ours.items() if outcome.verdict == "wrong"}
    assert not set(wrong) - set(OTHERWISE_ROUNDED), wrong
    passed = [name for name in chosen if theirs[name].verdict == "right"]
    assert sum(ours[name].verdict == "right" for name in passed) >= 0.7 * len(passed)
    assert len(passed) > 0.9 * len(chosen)
