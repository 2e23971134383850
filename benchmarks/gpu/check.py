"""The one script for a GPU: every kernel of a bundle checked against its definition, then timed against other ways.

Needs torch, Triton and numpy. Checks run first, each kernel in a process of its own, so that one that breaks the
device or hangs is a row and not the end. The exit status is 1 where a check fails.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, is_tensor

from benchmarks.gpu import contenders
from benchmarks.gpu.attentions import Operands, arranged, flops, key_heads, operands, program, restored
from benchmarks.gpu.rows import OUT_OF_TIME, Row, Rows

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
LENGTHS = (1, 67, 333, 1021)
"""Of the checks; the odd ones with heads between positions."""
TOKENS, HEADS = 16384, 16
"""Of what is timed, as in published charts."""
LAST = 64
"""Rows at the end of a timed result that are checked."""
KERNEL_SECONDS = 150.0
"""Seconds one kernel's checks may take."""
CEILINGS = {
    "bf16 TFLOP/s, dense, NVIDIA's datasheet of the H200": 989.0,
    "bf16 TFLOP/s, torch matmul 8192³ of random numbers, measured on an H200, 769 to 798": 788.0,
    "TB/s, NVIDIA's datasheet of the H200": 4.8,
    "TB/s, copy on the device, read and written, measured on an H200": 4.3,
}

Kernel = dict[str, Any]
"""A kernel of the manifest."""


def load(bundle: Path, kernel: Kernel) -> ModuleType:
    """The module of a kernel."""
    spec = importlib.util.spec_from_file_location(kernel["name"], bundle / kernel["file"])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def launcher(module: Any, kernel: Kernel, given: Operands) -> Callable[[], Tensor]:
    """A call of the kernel on operands [B, H, S, D], with its result as [B, H, S, D]."""
    q, k, v, sides, sizes = arranged(kernel, given)
    return lambda: restored(kernel, module.attention(q, k, v, sides, sizes)[0])


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """Inside, what ``new_empty`` gives is NaN: an element that a kernel doesn't write shows."""
    plain = torch.Tensor.new_empty

    def filled(self: Tensor, *arguments: Any, **named: Any) -> Tensor:
        made = plain(self, *arguments, **named)
        return made.fill_(float("nan")) if made.is_floating_point() else made

    # A method is replaced on purpose: emitted modules allocate with it.
    torch.Tensor.new_empty = filled  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        torch.Tensor.new_empty = plain  # type: ignore[method-assign]


def judged(out: Tensor, eager: Tensor, wanted: Tensor) -> Row:
    """Errors relative to the greatest number wanted; ours may be twice eager's and four roundings."""
    finite = wanted.isfinite() & eager.isfinite()
    scale = greatest(wanted[finite]) or 1.0
    error = greatest((out.double() - wanted)[finite]) / scale if out[finite].isfinite().all() else float("inf")
    theirs = greatest((eager.double() - wanted)[finite]) / scale
    allowed = 2 * theirs + 4 * torch.finfo(out.dtype).eps
    passed = error <= allowed and bool(finite.all())
    return {"error": error, "eager": theirs, "allowed": allowed, "passed": passed}


def greatest(x: Tensor) -> float:
    """max |x|; 0 of nothing."""
    return x.abs().max().item() if x.numel() else 0.0


def checked(run: Callable[[], Tensor], variant: str, given: Operands, first: int = 0) -> Row:
    """A call's result, from row ``first`` on, beside eager's and float64's."""
    with torch.no_grad(), poisoned():
        out = run()[:, :, first:]
    with torch.no_grad():
        eager = program(variant, *given.all, first=first)
        wanted = program(variant, *given.wide().all, first=first)
    return judged(out, eager, wanted)


# -- one kernel


def check_kernel(bundle: Path, kernel: Kernel, device: str = "cuda", lengths: Sequence[int] = LENGTHS) -> Iterator[Row]:
    """A row for each length."""
    module, variant = load(bundle, kernel), kernel["variant"]
    for length in lengths:
        shape = (2, kernel["heads"], kernel["kv_heads"], length, kernel["head_dim"])
        given = operands(variant, *shape, DTYPES[kernel["dtype"]], device, seed=length, strided=length > 1)
        yield {"case": f"S={length}", **checked(launcher(module, kernel, given), variant, given)}


def check_alone(bundle: Path, kernel: Kernel, path: Path, seconds: float) -> list[Row]:
    """The rows of a kernel's checks in a new process, and one more where it doesn't end well."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu.check",
        str(bundle),
        "--kernel",
        kernel["name"],
        "--out",
        str(path),
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ended = False
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=seconds)
        ended, trouble = done.returncode in (0, 1), f"exit status {done.returncode}: {done.stderr[-1500:]}"
    except subprocess.TimeoutExpired:
        trouble = f"no end after {seconds:.0f} s"
    rows: list[Row] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    path.unlink(missing_ok=True)
    return rows if rows and ended else [*rows, {"status": "error", "error": trouble}]


def check_all(rows: Rows, bundle: Path, kernels: Sequence[Kernel], workers: int) -> None:
    """Check kernels, ``workers`` at a time; rows come in the manifest's order."""

    def one(kernel: Kernel) -> list[Row]:
        seconds = min(KERNEL_SECONDS, rows.left)
        if seconds <= 0:
            return [{"status": OUT_OF_TIME}]
        return check_alone(bundle, kernel, rows.path.with_name(f"{kernel['name']}.part.json"), seconds)

    with ThreadPoolExecutor(workers) as pool:
        for kernel, found in zip(kernels, pool.map(one, kernels), strict=True):
            for row in found:
                rows.add({"kind": "numerics", "kernel": kernel["name"], **row})


# -- time


def matmul() -> Iterator[Row]:
    """This device's bf16 product of 8192³ random numbers, beside published ceilings."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    row = contenders.timed({"matmul": lambda: a @ b})["matmul"]
    yield {**row, "tflops": 2 * 8192**3 / row["ms"] / 1e9, "ceilings": CEILINGS}


def time_kernel(bundle: Path, kernel: Kernel, length: int, naive: bool) -> Iterator[Row]:
    """A check of the last rows, then every contender's time; ``off``: greatest distance from ours."""
    torch.compiler.reset()
    torch.cuda.empty_cache()
    variant, dtype = kernel["variant"], DTYPES[kernel["dtype"]]
    shape = (TOKENS // length, HEADS, key_heads(kernel, HEADS), length, kernel["head_dim"])
    given = operands(variant, *shape, dtype, "cuda")
    ours = launcher(load(bundle, kernel), kernel, given)
    yield {"kind": "numerics", **checked(ours, variant, given, first=length - LAST)}
    with torch.no_grad():
        working, rows = contenders.prepared(contenders.ways(variant, given, naive))
        yield from rows
        everyone = {"attnc": ours, **working}
        results = {name: run() for name, run in everyone.items()}
        off = {name: greatest(x.float() - results["attnc"].float()) for name, x in results.items() if is_tensor(x)}
        del results
        work = flops(variant, given) / 1e9
        for name, row in contenders.timed(everyone).items():
            rates = {"tflops": work / row["ms"], "off": off[name]} if name in off else {}
            yield {"contender": name, **row, **rates}


def schedule(kernels: Sequence[Kernel]) -> list[tuple[Kernel, int, bool]]:
    """(kernel, length, with Inductor) in the order of what matters most, since time may run out."""
    main = [k for k in kernels if k["variant"] in ("causal", "cross") and (k["head_dim"], k["dtype"]) == (128, "bf16")]
    variants = [k for k in kernels if k not in main and k["variant"] not in ("causal", "cross")]
    others = [k for k in kernels if k not in main and k not in variants]
    return [
        *((k, length, length < 16384) for length in (8192, 16384, 2048) for k in main),
        *((k, 8192, False) for k in (*variants, *others)),
        *((k, length, False) for length in (16384, 2048) for k in variants),
        *((k, 16384, True) for k in main),
    ]


def time_all(rows: Rows, bundle: Path, kernels: Sequence[Kernel]) -> None:
    """Time kernels; those whose checks raised or hung are left out."""
    rows.run({"kind": "matmul"}, matmul)
    broken = {row["kernel"] for row in rows.rows if row["kind"] == "numerics" and row["status"] == "error"}
    for kernel, length, naive in schedule(kernels):
        what = {"kind": "time", "kernel": kernel["name"], "case": f"B={TOKENS // length} H={HEADS} S={length}"}
        if kernel["name"] in broken:
            rows.add({**what, "status": "not run: its checks ended with an error"})
            continue
        # Defaults bind the loop's variables; mypy infers no type for such a lambda.
        rows.run(what, lambda kernel=kernel, length=length, naive=naive: time_kernel(bundle, kernel, length, naive))  # type: ignore[misc]


# -- the command line


def wrong(rows: Sequence[Row]) -> bool:
    """Whether a check failed or didn't end; one there was no time for is neither."""
    checks = [row for row in rows if row["kind"] == "numerics"]
    return any(row["status"] == "error" or not row.get("passed", True) for row in checks)


def about() -> Row:
    """The device and the versions."""
    import triton

    properties = torch.cuda.get_device_properties(0)
    versions = {"torch": torch.__version__, "triton": triton.__version__, "python": sys.version.split()[0]}
    return {"device": properties.name, "memory_gib": properties.total_memory / 2**30, **versions}


def main(arguments: list[str] | None = None) -> int:
    """Check and time; returns the exit status."""
    parser = argparse.ArgumentParser(prog="check.py", description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results.json"))
    parser.add_argument("--minutes", type=float, default=8.0, help="what hasn't begun by then isn't run")
    parser.add_argument("--workers", type=int, default=min(8, os.cpu_count() or 1), help="kernels checked at a time")
    parser.add_argument("--kernel", help="only the checks of this kernel, in this process")
    options = parser.parse_args(arguments)
    kernels = json.loads((options.bundle / "manifest.json").read_text(encoding="utf-8"))["kernels"]
    rows = Rows(options.out, options.minutes)
    if options.kernel:
        kernel = next(k for k in kernels if k["name"] == options.kernel)
        rows.run({"kind": "numerics", "kernel": kernel["name"]}, lambda: check_kernel(options.bundle, kernel))
    else:
        rows.run({"kind": "device"}, lambda: [about()])
        check_all(rows, options.bundle, kernels, options.workers)
        time_all(rows, options.bundle, kernels)
    return int(wrong(rows.rows))


if __name__ == "__main__":
    sys.exit(main())
