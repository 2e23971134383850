"""Peak memory of a long attention: linear in the length, because no score matrix is ever made."""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
from pathlib import Path

LENGTHS = (8192, 16384)
HIDDEN, VOCABULARY = 64, 32
MEGABYTE = 1 << 20


def linear_growth() -> dict[str, object]:
    """Growth of a Llama layer's peak RSS at S = 8192 and 16384, each in a process of its own.

    Raises AssertionError where the longer grows by more than 2.5 times the shorter, or by 256 MiB beyond weights,
    activations and K/V.
    """
    short, long = (_measure(length) for length in LENGTHS)
    beyond = long["growth"] - long["needed"]
    figures: dict[str, object] = {
        "growth_mib": [round(m["growth"] / MEGABYTE, 1) for m in (short, long)],
        "ratio": round(long["growth"] / short["growth"], 2),
        "beyond_mib": round(beyond / MEGABYTE, 1),
        "fused": long["fused"],
    }
    assert long["fused"] == 1, figures
    assert long["growth"] <= 2.5 * short["growth"], figures
    assert beyond < 256 * MEGABYTE, figures
    return figures


def _measure(length: int) -> dict[str, int]:
    done = subprocess.run([sys.executable, "-m", __name__, str(length)], stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return result


def run(length: int) -> dict[str, int]:
    """Bytes by which one forward pass grows this process's peak, after a short pass has loaded everything."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from attnc.compiler.backend import backend
    from attnc.compiler.report import reports

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=HIDDEN,
        num_hidden_layers=1,
        num_attention_heads=1,
        max_position_embeddings=length,
        use_cache=False,
        attn_implementation="eager",
    )
    model = LlamaForCausalLM(config).eval()
    compiled = torch.compile(model, backend=backend(host="aten"))
    with torch.no_grad():
        for size in (64, length):
            ids = torch.randint(0, VOCABULARY, (2, size))
            keep = torch.ones_like(ids)
            keep[1, : size // 3] = 0
            for axis in (0, 1):
                torch._dynamo.mark_dynamic(ids, axis)
                torch._dynamo.mark_dynamic(keep, axis)
            before = _restart_peak()
            compiled(input_ids=ids, attention_mask=keep)
    # Live at once in one layer, at most: residual, normed, q, k, v and their rotated copies and halves, attention
    # output, three of the gated MLP, logits: 16 tensors [2, S, hidden].
    needed = 16 * 2 * length * HIDDEN * 4
    return {"growth": _status("VmHWM") - before, "needed": needed, "fused": sum(r.fused for r in reports())}


def _restart_peak() -> int:
    """Give freed memory back, restart the kernel's peak counter, and return the resident bytes it starts from."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]))))
