"""Other ways to a variant's result on a GPU, and how all of them are timed."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.gpu import attentions
from benchmarks.gpu.attentions import Operands
from benchmarks.gpu.rows import Row, failed

Run = Callable[[], Any]

PLAIN = ("causal", "gqa", "mqa", "cross")
"""Variants that SDPA's kernels have without a mask operand."""
SAMPLE_SECONDS = 0.003
"""One sample repeats a call until it takes about this long, so that its start is hidden behind the calls before it."""


def sdpa(variant: str, given: Operands, backend: SDPBackend) -> Run:
    """SDPA by one of its kernels. Raises ValueError where the variant isn't SDPA's."""
    if variant not in (*PLAIN, "dense-mask"):
        raise ValueError(f"SDPA has no {variant}")
    how: dict[str, Any] = {"is_causal": variant not in ("cross", "dense-mask"), "enable_gqa": variant in ("gqa", "mqa")}
    if variant == "dense-mask":
        how["attn_mask"] = given.sides[0]

    def run() -> Tensor:
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(given.q, given.k, given.v, **how)

    return run


def mask_mod(variant: str, given: Operands) -> Callable[..., Tensor] | None:
    """FlexAttention's mask function (batch, head, query, key) → visible; None for all."""
    window, chunk, prefix = attentions.WINDOW, attentions.CHUNK, attentions.PREFIX
    (side,) = given.sides or (given.q,)
    masks: dict[str, Callable[..., Tensor] | None] = {
        "window": lambda b, h, q, k: (k <= q) & (k > q - window),
        "chunked": lambda b, h, q, k: (k <= q) & (k // chunk == q // chunk),
        "prefix": lambda b, h, q, k: (k <= q) | (k < prefix),
        "documents": lambda b, h, q, k: (k <= q) & (side[b, q] == side[b, k]),
        "dense-mask": lambda b, h, q, k: side[b, 0, q, k],
        **dict.fromkeys(attentions.EVERY_PAIR),
    }
    return masks.get(variant, lambda b, h, q, k: k <= q)


def score_mod(variant: str, given: Operands) -> Callable[..., Tensor] | None:
    """FlexAttention's score function (score, batch, head, query, key) → score; None where scores stay."""
    cap, reach = attentions.CAP, attentions.REACH
    (side,) = given.sides or (given.q,)
    scores: dict[str, Callable[..., Tensor]] = {
        "alibi": lambda s, b, h, q, k: s + side[h] * (k - q),
        "softcap": lambda s, b, h, q, k: torch.tanh(s / cap) * cap,
        "relative-table": lambda s, b, h, q, k: s + side[(k - q).clamp(-reach, reach) + reach, h],
    }
    return scores.get(variant)


def block_mask(variant: str, given: Operands, compiled: bool = True) -> Any:
    """FlexAttention's block mask; None where every pair is visible."""
    mask = mask_mod(variant, given)
    if mask is None:
        return None
    batch = given.q.shape[0] if variant in ("documents", "dense-mask") else None
    q, k = given.q.shape[2], given.k.shape[2]
    return create_block_mask(mask, batch, None, q, k, device=str(given.q.device), _compile=compiled)


def flex_program(variant: str, given: Operands) -> Callable[..., Tensor]:
    """FlexAttention of (q, k, v, block mask), not compiled; a sink is put in by way of the lse."""
    score, gqa = score_mod(variant, given), given.q.shape[1] != given.k.shape[1]

    # torch doesn't say what flex_attention returns.
    def attention(q: Tensor, k: Tensor, v: Tensor, blocks: Any) -> Tensor:
        found: Any = flex_attention(q, k, v, score, blocks, enable_gqa=gqa)
        return found  # type: ignore[no-any-return]

    def with_sink(q: Tensor, k: Tensor, v: Tensor, blocks: Any) -> Tensor:
        found: Any = flex_attention(q, k, v, score, blocks, enable_gqa=gqa, return_aux=AuxRequest(lse=True))
        out, aux = found
        return out * torch.sigmoid(aux.lse - sink[None, :, None])[..., None].to(out.dtype)  # type: ignore[no-any-return]

    sink = given.sides[0] if variant == "sinks" else given.q
    return with_sink if variant == "sinks" else attention


def flex(variant: str, given: Operands) -> dict[str, Run]:
    """FlexAttention with its block mask at hand, the making of the mask, and both in every call."""
    compiled: Any = torch.compile(flex_program(variant, given), dynamic=False)
    kept = block_mask(variant, given)
    found: dict[str, Run] = {"flex": lambda: compiled(given.q, given.k, given.v, kept)}
    if kept is not None:
        found["flex mask alone"] = lambda: block_mask(variant, given)
        found["flex and its mask"] = lambda: compiled(given.q, given.k, given.v, block_mask(variant, given))
    return found


def inductor(variant: str, given: Operands) -> Run:
    """The program by definition under torch.compile. Raises MemoryError where its scores have no room."""
    batch, heads, queries, _ = given.q.shape
    needed = 12 * batch * heads * queries * given.k.shape[2]
    if needed > (free := torch.cuda.mem_get_info()[0]):
        raise MemoryError(f"scores take about {needed >> 30} GiB, {free >> 30} are free")
    compiled: Any = torch.compile(lambda q, k, v, *sides: attentions.program(variant, q, k, v, *sides), dynamic=False)
    return lambda: compiled(*given.all)


def ways(variant: str, given: Operands, naive: bool) -> dict[str, Callable[[], dict[str, Run]]]:
    """What makes each contender, by name; ``naive``: Inductor on the program too. A maker may raise."""
    makers: dict[str, Callable[[], dict[str, Run]]] = {}
    if variant in PLAIN:
        makers["flash"] = lambda: {"flash": sdpa(variant, given, SDPBackend.FLASH_ATTENTION)}
    if variant in (*PLAIN, "dense-mask"):
        makers["cudnn"] = lambda: {"cudnn": sdpa(variant, given, SDPBackend.CUDNN_ATTENTION)}
    if variant == "dense-mask":
        makers["efficient"] = lambda: {"efficient": sdpa(variant, given, SDPBackend.EFFICIENT_ATTENTION)}
    makers["flex"] = lambda: flex(variant, given)
    if naive:
        makers["inductor"] = lambda: {"inductor": inductor(variant, given)}
    return makers


def prepared(makers: Mapping[str, Callable[[], dict[str, Run]]]) -> tuple[dict[str, Run], list[Row]]:
    """Contenders that ran once, and a row for each that didn't."""
    working: dict[str, Run] = {}
    rows: list[Row] = []
    for name, maker in makers.items():
        try:
            made = maker()
            for run in made.values():
                run()
            torch.cuda.synchronize()
        except Exception as failure:  # what can't run here is a fact to report
            rows.append({"contender": name, **failed(failure)})
        else:
            working |= made
    return working, rows


# -- time


def on_gpu(run: Callable[[], object], calls: int) -> float:
    """Milliseconds of the GPU per call."""
    event: Any = torch.cuda.Event
    begin, end = event(enable_timing=True), event(enable_timing=True)
    begin.record()
    for _ in range(calls):
        run()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / calls


def timed(
    contenders: Mapping[str, Callable[[], object]], rounds: int = 7,
    sample: Callable[[Callable[[], object], int], float] = on_gpu,
) -> dict[str, Row]:  # fmt: skip
    """Milliseconds of each: median, fastest and slowest of ``rounds`` samples; in every round each takes its turn.

    ``host_ms`` is how long a call keeps the host: what is no slower on the GPU was waiting for the host.
    """
    calls = {}
    for name, run in contenders.items():
        sample(run, 2)
        calls[name] = min(200, max(1, math.ceil(1000 * SAMPLE_SECONDS / max(sample(run, 2), 1e-4))))
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            found[name].append(sample(run, calls[name]))
    return {
        name: {
            "ms": statistics.median(times), "low_ms": min(times), "high_ms": max(times), "rounds": rounds,
            "calls": calls[name], "host_ms": _host(contenders[name]),
        }
        for name, times in found.items()
    }  # fmt: skip


def _host(run: Callable[[], object], calls: int = 10) -> float:
    begin = time.perf_counter()
    for _ in range(calls):
        run()
    return 1000 * (time.perf_counter() - begin) / calls
