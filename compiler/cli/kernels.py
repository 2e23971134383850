"""``attnc kernels``: kernels compiled ahead of time for a GPU that need not be at hand, and what is in their code."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnc.compiler.cli import dims, inputs, source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnc.codegen.targets import Capability
    from attnc.compiler.machine.plans import Attention


class Precision(StrEnum):
    """The dtype of the built-in variants."""

    BF16 = "bf16"
    F16 = "f16"
    F32 = "f32"


def kernels(
    src: Annotated[
        str | None, typer.Argument(metavar="[SRC]", help=f"{source.HELP} Default: a set of variants.")
    ] = None,
    target: Annotated[str, typer.Option(metavar="NAME", help="sm_80, sm_90, gfx942, …")] = "sm_90",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write machine code, record and source of each kernel there.")
    ] = None,
    variant: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only these variants.")] = None,
    head_dim: Annotated[int, typer.Option(metavar="N", min=1, help="Of the variants.")] = 128,
    dtype: Annotated[Precision, typer.Option(help="Of the variants.")] = Precision.BF16,
    example: Annotated[Path | None, typer.Option("--inputs", metavar="FILE", help=inputs.HELP)] = None,
    dim: Annotated[list[str] | None, typer.Option(metavar="NAME=RANGE", help=dims.HELP)] = None,
) -> None:
    """Compile every kernel for a GPU and show registers, spills, shared memory and the main loop's instructions.

    Exits with 1 where a kernel shuts a gate: spills, no tensor cores, narrow loads, serialised matrix instructions.
    """
    from attnc.compiler.cli.console import progress

    gpu = _gpu(target)
    rows: list[dict[str, Any]] = []
    with progress(f"compiling for {target}"):
        attentions = (
            _variants(variant, target, head_dim, dtype)
            if src is None
            else _model(src, target, source.load(src, example, dims.parse_dims(dim or [])))
        )
        for attention in attentions:
            rows.append(_row(attention, gpu, out))
    _print(rows, target, json)
    if any(row["gates"] for row in rows):
        raise typer.Exit(1)


def _gpu(target: str) -> Capability:
    from attnc.codegen.targets import CAPABILITIES
    from attnc.compiler.cli.errors import CliError

    known = {name: c for name, c in CAPABILITIES.items() if c.gpu is not None}
    if target not in known:
        raise CliError(f"--target {target}: kernels are compiled ahead of time for {', '.join(known)}")
    return known[target]


def _variants(names: list[str] | None, target: str, head_dim: int, dtype: Precision) -> Iterator[Attention]:
    from attnc.compiler.cli.errors import CliError
    from attnc.compiler.machine.plans import variant_attention
    from attnc.compiler.machine.variants import VARIANTS
    from attnc.runtime.abi import DTYPES

    for name in names or VARIANTS:
        if name not in VARIANTS:
            raise CliError(f"--variant {name}: known are {', '.join(VARIANTS)}")
        yield variant_attention(VARIANTS[name], target, head_dim, DTYPES[dtype.value])


def _model(src: str, target: str, subject: source.Subject) -> Iterator[Attention]:
    from attnc.compiler import api
    from attnc.compiler.machine.plans import attentions

    program = api.compile(
        subject.model, subject.args, subject.kwargs, dynamic_shapes=subject.dynamic_shapes, name=src,
        options={"target": target},
    )  # fmt: skip
    yield from attentions(program)


def _row(attention: Attention, target: Capability, out: Path | None) -> dict[str, Any]:
    """What is shown of one kernel."""
    from attnc.compiler.machine.package import package
    from attnc.compiler.machine.select import select

    done = select(attention.op, target)
    row = {**done.as_dict(), "name": attention.name}
    if out is not None:
        row["file"] = str(package(done, f"{attention.name}_{target.name}", out))
    return row


def _print(rows: list[dict[str, Any]], target: str, as_json: bool) -> None:
    import json

    from rich.table import Table

    from attnc.compiler.cli.console import stdout

    if as_json:
        print(json.dumps({"kernels": rows}, indent=2))
        return
    table = Table(title=f"kernels for {target}")
    for heading in ("kernel", "tile", "registers", "spills", "shared", "programs", "loop", "matrix", "others", "gates"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        config, per = row["config"], row["non_matrix_per_matrix"]
        table.add_row(
            row["name"],
            f"{config['block_m']}×{config['block_n']}, {config['num_warps']} warps, {config['num_stages']} stages",
            *(str(row[key]) for key in ("registers", "spills", "shared")),
            f"{row['occupancy']['programs']} ({row['occupancy']['limit']})",
            *(str(row[key]) for key in ("length", "tensor_core")),
            "" if per is None else f"{per:.1f}",
            "; ".join(f"{g['gate']}: {g['reason']}" for g in row["gates"]) or "all passed",
        )
    stdout().print(table)
    for row in rows:
        for d in row["discarded"]:
            tile = f"{d['config']['block_m']}×{d['config']['block_n']}"
            stdout().print(f"{row['name']}: {tile} discarded, {d['reason']}", highlight=False)
