"""A pytest plugin (``-p tests.triton.everywhere``): every kernel a test compiles is Triton's, run in its interpreter.

The tests of the C++ backend then judge the Triton one by the same rule on the same programs. ``--plans FOLDER`` also
writes each distinct plan there as it is for sm_90, for a process that compiles them; ``--part I/N`` runs the
I-th of N runs of tests.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"  # before anything loads triton
os.environ["ATTNC_TARGET"] = "triton-interpret"

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from attnc.codegen.plan import KernelPlan
from attnc.codegen.triton.emitter import emit, launch
from attnc.compiler.passes import choose_strategy
from tests.triton.triton_compat import install

if TYPE_CHECKING:
    from attnc.ir.values import Op

install()

GPU = "sm_90"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--plans", type=Path, metavar="FOLDER", help="write every plan there, as it is for sm_90")
    parser.addoption("--part", default="0/1", metavar="I/N", help="the I-th of N runs of tests")


def pytest_configure(config: pytest.Config) -> None:
    folder: Path | None = config.getoption("--plans")
    if folder is not None:
        record(folder)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part, parts = (int(number) for number in config.getoption("--part").split("/"))
    items[:] = items[len(items) * part // parts : len(items) * (part + 1) // parts]  # neighbours share plans


def record(folder: Path) -> None:
    """From now on each attention that gets a plan leaves its plan for a GPU in ``folder``, by digest.

    ``DIGEST.json`` is the plan; ``DIGEST.refused`` says why there is no kernel of it, if so.
    """
    folder.mkdir(parents=True, exist_ok=True)
    planned = choose_strategy.plan_attention

    def plan_attention(op: Op, target: str, tile: tuple[int, int] | None = None) -> KernelPlan:
        write(folder, planned(op, GPU))
        return planned(op, target, tile)

    choose_strategy.plan_attention = plan_attention


def write(folder: Path, plan: KernelPlan) -> None:
    path = folder / f"{plan.digest}.json"
    if path.exists():
        return
    path.write_text(plan.to_json(), encoding="utf-8")
    try:
        emit(plan), launch(plan)
    except ValueError as error:
        path.with_suffix(".refused").write_text(str(error), encoding="utf-8")
