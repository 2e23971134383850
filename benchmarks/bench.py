"""``make bench``: one attention at a time against PyTorch's own ways to the same result. Ratios, nothing asserted.

Contenders: SDPA with the mask it needs, FlexAttention compiled with its block mask, Inductor on the naive code, and
attnc on the same naive code. Each case runs interleaved in one process; figures go to ``build/bench.json`` as well.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import attnc
from benchmarks import end_to_end
from benchmarks.timing import Timing, interleaved

RESULT = Path(__file__).parents[1] / "build" / "bench.json"
WINDOW = 512
CAP = 30.0

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
console = Console()


@dataclass(frozen=True)
class Case:
    """One attention: heads H, length S, head size D."""

    variant: str
    length: int
    features: int
    threads: int
    heads: int = 8


def naive(variant: str) -> Attention:
    """Two matmuls around a softmax, with the variant's term and mask written out. q, k, v [1, H, S, D]."""

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        row = torch.arange(q.shape[-2])[:, None]
        column = torch.arange(k.shape[-2])[None, :]
        if variant == "softcap":
            scores = CAP * torch.tanh(scores / CAP)
        if variant == "alibi":
            scores = scores + slopes(q.shape[1])[:, None, None] * (column - row)
        if variant != "full":
            visible = column <= row
            if variant == "window":
                visible = visible & (column > row - WINDOW)
            scores = scores.masked_fill(~visible, -math.inf)
        return scores.softmax(-1) @ v

    return attention


def slopes(heads: int) -> Tensor:
    """ALiBi's float32 [H]: 2^(-8/H), 2^(-16/H), …"""
    return 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)


def sdpa(case: Case) -> Attention | None:
    """SDPA for the variant; None where it can't express it."""
    row, column = torch.arange(case.length)[:, None], torch.arange(case.length)[None, :]
    causal = column <= row
    match case.variant:
        case "full":
            return F.scaled_dot_product_attention
        case "causal":
            return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
        case "window":
            mask = causal & (column > row - WINDOW)
        case "alibi":
            bias = slopes(case.heads)[:, None, None] * (column - row)
            mask = bias.masked_fill(~causal, -math.inf)[None]
        case _:
            return None
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def flex(case: Case) -> Attention:
    """FlexAttention, compiled, with the block mask and score function of the variant."""
    height = slopes(case.heads)

    def visible(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (q >= k) & (k > q - WINDOW) if case.variant == "window" else q >= k

    def score(value: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return CAP * torch.tanh(value / CAP) if case.variant == "softcap" else value + height[h] * (k - q)

    length = case.length
    blocks = None if case.variant == "full" else create_block_mask(visible, None, None, length, length, device="cpu")
    chosen = score if case.variant in ("softcap", "alibi") else None
    compiled: Any = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: compiled(q, k, v, score_mod=chosen, block_mask=blocks)


def contenders(case: Case) -> dict[str, Attention]:
    """Every way to the case's result that works here."""
    found: dict[str, Attention] = {
        "attnc": torch.compile(naive(case.variant), backend=attnc.backend(host="aten"), dynamic=False),
        "inductor": torch.compile(naive(case.variant), dynamic=False),
        "flex": flex(case),
    }
    library = sdpa(case)
    return found if library is None else {**found, "sdpa": library}


def measure(case: Case, runs: int) -> dict[str, Timing]:
    """Times of the contenders that run. One that fails or is wrong is named on the console and left out."""
    torch.compiler.reset()
    torch.set_num_threads(case.threads)
    generator = torch.Generator().manual_seed(0)
    shape = (1, case.heads, case.length, case.features)
    q, k, v = (torch.randn(shape, generator=generator) for _ in range(3))
    right = naive(case.variant)(q, k, v)
    working = {}
    for name, attention in contenders(case).items():
        try:
            error = (attention(q, k, v) - right).abs().max().item()
        except Exception as failure:  # a contender that can't run here is a fact to print, not ours to fix
            console.print(f"  {name}: {type(failure).__name__}: {str(failure).splitlines()[0]}")
            continue
        if error > 1e-4:
            console.print(f"  {name}: off by {error:.1e}")
            continue
        working[name] = lambda run=attention: run(q, k, v)
    return interleaved(working, runs=runs)


def sgemm_rate(threads: int) -> float:
    """GFLOP/s of a 1024³ float32 product, the machine's yardstick in the same run."""
    torch.set_num_threads(threads)
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    return 2 * 1024**3 / interleaved({"sgemm": lambda: a @ b}, runs=7)["sgemm"].median / 1e9


def main() -> None:
    """Measure the cases the arguments select; print a table and write the figures."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--variants", default="full,causal,window,softcap,alibi")
    parser.add_argument("--lengths", default="512,2048,4096")
    parser.add_argument("--features", default="64,128")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--no-models", action="store_true", help="single attentions only")
    options = parser.parse_args()
    cases = [
        Case(variant, int(length), int(features), int(threads))
        for threads in options.threads.split(",")
        for variant in options.variants.split(",")
        for features in options.features.split(",")
        for length in options.lengths.split(",")
    ]
    rates = {threads: sgemm_rate(threads) for threads in sorted({case.threads for case in cases})}
    table = Table("variant", "S", "D", "threads", "attnc ms", "sdpa", "flex", "inductor", title="times attnc's speed")
    figures = []
    for case in cases:
        times = measure(case, options.runs)
        figures.append({"case": asdict(case), "seconds": {name: asdict(time) for name, time in times.items()}})
        table.add_row(*_row(case, times))
    console.print(table)
    for threads, rate in rates.items():
        console.print(f"sgemm with {threads} threads: {rate:.0f} GFLOP/s")
    torch.set_num_threads(max(rates))
    whole = {} if options.no_models else {size: end_to_end.measure(*size, options.runs) for size in end_to_end.SIZES}
    for (batch, length), times in whole.items():
        console.print(f"MiniLM ({batch}, {length}): " + ", ".join(f"{k} {t.ms:.1f} ms" for k, t in times.items()))
        sizes = {"model": "minilm", "batch": batch, "length": length, "threads": max(rates)}
        figures.append({"case": sizes, "seconds": {name: asdict(time) for name, time in times.items()}})
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps({"torch": torch.__version__, "sgemm": rates, "figures": figures}, indent=2) + "\n")


def _row(case: Case, times: dict[str, Timing]) -> list[str]:
    """Cells of one case: our time, and how many times as long each other contender took."""
    head = [case.variant, str(case.length), str(case.features), str(case.threads)]
    ours = times.get("attnc")
    if ours is None:
        return [*head, "failed", "", "", ""]
    others = (times.get(name) for name in ("sdpa", "flex", "inductor"))
    return [*head, f"{ours.ms:.2f}", *("" if t is None else f"{t.median / ours.median:.2f}x" for t in others)]


if __name__ == "__main__":
    main()
