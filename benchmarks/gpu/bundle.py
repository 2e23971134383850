"""``make gpu-bundle``: the kernels a GPU session checks and times, as files that need torch and Triton only.

Kernels for the target are emitted here, without a GPU. The folder holds them, ``manifest.json``, and ``check.py``.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from attnc.codegen.plan import KernelPlan
from attnc.codegen.triton.emitter import emit
from attnc.compiler.machine.plans import variant_attention
from attnc.compiler.machine.variants import HEADS, VARIANTS
from attnc.compiler.planning.plan import plan_attention
from attnc.ir.values import Op
from benchmarks.gpu.rows import Row, write

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "gpu-bundle"
LIMIT = 20 << 20
"""Bytes a bundle may have."""
SCRIPTS = ("__init__", "attentions", "check", "contenders", "rows")
"""Modules of this folder that the script consists of."""
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
START = '''"""Check and time the kernels beside this file: python check.py BUNDLE --out results.json"""

import sys

from benchmarks.gpu.check import main

sys.exit(main())
'''


@dataclass(frozen=True)
class Wanted:
    """A kernel of the bundle."""

    variant: str
    head_dim: int = 128
    dtype: str = "bf16"

    @property
    def name(self) -> str:
        """A file's name, without its ending: ``causal_bf16_d128``."""
        return f"{self.variant.replace('-', '_')}_{self.dtype}_d{self.head_dim}"


KERNELS = (
    *(Wanted(name) for name in VARIANTS),
    *(Wanted("causal", head_dim) for head_dim in (40, 64, 80, 96, 256)),
    Wanted("causal", 64, "f16"),
    Wanted("causal", 128, "f16"),
    Wanted("causal", 64, "f32"),
)


def make(folder: Path, target: str = "sm_90", kernels: Iterable[Wanted] = KERNELS) -> int:
    """Write the bundle in place of ``folder``; returns its size in bytes.

    Raises ValueError where a variant isn't fused or the bundle is larger than ``LIMIT``, OSError where it can't be
    written; ``folder`` is then as it was.
    """
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        _scripts(temporary)
        rows = [_kernel(temporary, wanted, target) for wanted in kernels]
        write(temporary / "manifest.json", {"target": target, "kernels": rows})
        size = sum(path.stat().st_size for path in temporary.rglob("*") if path.is_file())
        if size > LIMIT:
            raise ValueError(f"the bundle has {size} bytes, more than {LIMIT}")
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return size


def _scripts(folder: Path) -> None:
    inner = folder / "benchmarks" / "gpu"
    inner.mkdir(parents=True)
    shutil.copy(ROOT / "benchmarks" / "__init__.py", inner.parent)
    for name in SCRIPTS:
        shutil.copy(Path(__file__).with_name(f"{name}.py"), inner)
    (folder / "check.py").write_text(START, encoding="utf-8")


def _kernel(folder: Path, wanted: Wanted, target: str) -> Row:
    """Emit a kernel; what the manifest says of it."""
    variant = VARIANTS[wanted.variant]
    op = variant_attention(variant, target, wanted.head_dim, DTYPES[wanted.dtype]).op
    plan = plan_attention(op, target)
    text = emit(plan).text
    path = folder / "kernels" / f"{wanted.name}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return {
        "name": wanted.name,
        "variant": wanted.variant,
        "head_dim": wanted.head_dim,
        "dtype": wanted.dtype,
        "file": path.relative_to(folder).as_posix(),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "plan": str(plan.digest),
        "axes": _axes(plan),
        "heads": HEADS,
        "kv_heads": variant.kv_heads,
        "side": _side(op),
        "sizes": list(plan.sizes),
    }


def _axes(plan: KernelPlan) -> dict[str, tuple[str, ...]]:
    return {"q": plan.q_axes, "k": plan.k_axes, "v": plan.v_axes, "out": plan.out_axes}


def _side(op: Op) -> str | None:
    """What the kernel reads beside q, k and v: None, the variant's "input", or its table "by-offset".

    The table is the only side that the program around the kernel computes. Raises ValueError for any other one.
    """
    sides: Any = op.args[3]
    if not sides:
        return None
    shape = tuple(str(n) for n in sides[0].type.shape)
    if len(sides) == 1 and sides[0].name == "sides_0":
        return "input"
    if len(sides) == 1 and shape == ("1", str(HEADS), "2*S - 1") and op.attrs["spec"].sizes == ("S",):
        return "by-offset"
    raise ValueError(f"the kernel reads {', '.join(side.name for side in sides)}, which the check script can't compute")


def main(arguments: list[str] | None = None) -> None:
    """Make the bundle and say how large it is."""
    parser = argparse.ArgumentParser(prog="make gpu-bundle", description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--target", default="sm_90")
    options = parser.parse_args(arguments)
    size = make(options.out, options.target)
    print(f"{options.out}: {len(KERNELS)} kernels for {options.target}, {size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
