"""``make demo``: a real pretrained model and two decoders, compiled; what was found, how exact and how fast it is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import torch
from rich.console import Console
from torch import Tensor, nn

import attnc
from attnc.models import llama, minilm, mistral
from attnc.models.layers import token_inputs
from benchmarks.policy import check
from benchmarks.timing import interleaved

SENTENCES = ("A cat sits on the mat.", "A kitten is resting on a rug.", "The stock market fell sharply today.")
LENGTH = 2048

console = Console()
if not console.is_terminal:
    console.width = 140


def compiled(model: nn.Module, inputs: dict[str, Tensor]) -> tuple[Callable[..., Tensor], attnc.Report]:
    """The model under ``torch.compile(backend="attnc")``, run once, and the report of its one graph."""
    torch.compiler.reset()
    before = len(attnc.reports())
    run = torch.compile(model, backend="attnc")
    with console.status("compiling"), torch.no_grad():
        run(**inputs)
    (report,) = attnc.reports()[before:]
    return run, report


def show_minilm() -> bool:
    """MiniLM with its real weights: 6 of 6, the error, and what the vectors say. False where any of it fails."""
    console.rule("MiniLM L6 v2, pretrained, 22.7 M parameters")
    model = minilm.load()
    inputs = minilm.tokenize(SENTENCES)
    run, report = compiled(model, inputs)
    report.render(console)
    verdict = check(run, model, inputs)
    console.print(f"attentions fused: [bold]{report.fused}/{report.total}[/]   {verdict}")
    with torch.no_grad():
        vectors = minilm.pool(run(**inputs), inputs["attention_mask"])
    near, far = (vectors[0] @ vectors[1]).item(), (vectors[0] @ vectors[2]).item()
    console.print(f"  {near:.3f}  {SENTENCES[0]!r} and {SENTENCES[1]!r}")
    console.print(f"  {far:.3f}  {SENTENCES[0]!r} and {SENTENCES[2]!r}")
    return (report.fused, report.total) == (6, 6) and verdict.passed and near > far + 0.3


def show_decoder(title: str, model: llama.Llama) -> bool:
    """A decoder at S = 2048: its table, its error, and its time beside eager's and Inductor's. False for a failure."""
    console.rule(f"{title}, random weights, S = {LENGTH}")
    inputs = token_inputs(model.config.vocab_size, 1, LENGTH)
    run, report = compiled(model, inputs)
    report.render(console)
    verdict = check(run, model, inputs)
    console.print(f"attentions fused: [bold]{report.fused}/{report.total}[/]   {verdict}")
    inductor = torch.compile(model)
    with torch.no_grad(), console.status("timing"):
        contenders: dict[str, Callable[..., Tensor]] = {"eager": model, "torch.compile": inductor, "attnc": run}
        times = interleaved({name: partial(f, **inputs) for name, f in contenders.items()}, warmup=2)
    ours = times["attnc"].median
    for name, time in times.items():
        console.print(f"  {name:14}{time.ms:8.1f} ms   {time.median / ours:5.2f}x   spread {time.spread:.0%}")
    return report.fused == report.total == model.config.layers and verdict.passed


def main() -> int:
    """Run the three parts; 1 where one of them did not do what it promises."""
    done = [
        show_minilm(),
        show_decoder("Llama-like: 8 query heads on 2 key/value heads", llama.small()),
        show_decoder("Mistral-like: the same with a window of 256", mistral.small()),
    ]
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
