"""One case of the matrix: compiled here, its kernel run in interpreters' processes, judged by the numerics policy."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

import torch
from torch import Tensor

from attnc.codegen.source import Source
from attnc.compiler import api
from attnc.compiler.api import Program
from attnc.compiler.machine.variants import VARIANTS, Model
from attnc.runtime import ops
from attnc.runtime.abi import DTYPES
from attnc.runtime.triton_kernels import Attention
from benchmarks.policy import Float64, judge, widened
from tests.triton.kernel_matrix import Case
from tests.triton.worker import POISONED, interpreted

REACH = 44
LENGTHS = {"odd": 77, "one": 1, "dead": 70}


def check(case: Case, versions: Sequence[str]) -> None:
    """Run a case under versions of Triton, with dead rows once for each kind of fill.

    Raises AssertionError where it isn't fused or out of bounds.
    """
    dtype, padded = DTYPES[case.dtype], case.rows == "dead"
    for fill in (float("-inf"), torch.finfo(dtype).min) if padded else (float("-inf"),):
        model, program = compiled(case.variant, case.head_dim, dtype, padded, fill)
        assert program.report.fused == program.report.total == 1
        torch.manual_seed(zlib.crc32(str(case).encode()))
        args = model.variant.inputs(case.head_dim, dtype, batch=2, length=LENGTHS[case.rows], padded=padded)
        with torch.no_grad():
            eager: Tensor = model(*args)
            with Float64():
                exact: Tensor = model(*(widened(x) for x in args))
            for version in versions:
                with kernels_under(version):
                    ours = program(*args)
                verdict = judge(ours, eager, exact)
                assert verdict.ours <= verdict.bound, f"{case} under {version}: {verdict}"


@functools.lru_cache(maxsize=1)
def compiled(variant: str, head_dim: int, dtype: torch.dtype, padded: bool, fill: float) -> tuple[Model, Program]:
    """A variant, and the same for any batch and length with its attention as a kernel for the interpreter."""
    model = Model(VARIANTS[variant], padded, fill, REACH)
    example = model.variant.inputs(head_dim, dtype, padded=padded)
    shapes = model.variant.dims(padded)
    return model, api.compile(model, example, dynamic_shapes=shapes, options={"target": "triton-interpret"})


@contextmanager
def kernels_under(version: str) -> Iterator[None]:
    """Kernels run in the process of a Triton, into results filled with NaN."""

    def elsewhere(source: Source, target: str) -> Attention:
        return functools.partial(interpreted(version).run, source.text + POISONED, "poisoned")

    with mock.patch.object(ops, "attention_of", elsewhere):
        yield
