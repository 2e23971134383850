"""Gets a process ready to be forked for each model: everything imported, one attention compiled."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Mapping

import torch
import transformers
from torch import Tensor

import attnc
from benchmarks.coverage import zoo
from benchmarks.coverage.fork import Fields, Job
from benchmarks.coverage.measure import measure
from benchmarks.coverage.results import Listed

WARM_UP = ("bert", "vit")


def prepare() -> None:
    """Import and warm up what every child needs. One thread: a fork takes no other with it."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    warnings.filterwarnings("ignore", category=UserWarning)
    q = torch.randn(1, 2, 4, 8)
    with torch.no_grad():
        torch.compile(_attention, backend=attnc.backend(host="aten"))(q)
    for name in WARM_UP:
        zoo.build(name)
    gc.collect()
    gc.freeze()  # children don't write to its pages


def job(models: Mapping[str, Listed]) -> Job:
    """The job of a child: measure one model type."""

    def run(name: str) -> Fields:
        return measure(name, models[name].family, models[name].sites).to_dict()

    return run


def _attention(q: Tensor) -> Tensor:
    return torch.softmax(q @ q.mT, -1) @ q
