"""What an artifact holds, for people and for JSON. Everything in it is checked on the way, and nothing of it runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from attnc.runtime.artifact.machine import runs_here
from attnc.runtime.artifact.manifest import BASE, Port
from attnc.runtime.artifact.opened import ATTENTION, Opened, described, open_artifact, plan_of


def describe(path: str | Path) -> dict[str, Any]:
    """An artifact in plain values. Raises ArtifactError for a file that is none, or not whole."""
    opened = open_artifact(path)
    opened.constants()
    manifest = opened.manifest
    operators = Counter(step.op for step in opened.program.steps)
    return {
        "name": manifest.name,
        "attnc": manifest.attnc,
        "bytes": Path(path).stat().st_size,
        "targets": list(manifest.targets),
        "sizes": [vars(bounds) for bounds in manifest.sizes],
        "inputs": [{**_port(port), "written_in_place": port.mutated} for port in manifest.inputs],
        "outputs": [_port(port) for port in manifest.outputs],
        "attentions": _attentions(opened),
        "operators": [{"name": name, "count": operators[name]} for name in sorted(operators)],
        "entries": [{"name": name, "bytes": entry.size} for name, entry in manifest.entries.items()],
        "binaries": [
            {**vars(b), "features": list(b.features), "plan": None if b.plan is None else str(b.plan)}
            for b in manifest.binaries
        ],
    }


def _port(port: Port) -> dict[str, Any]:
    return {"name": port.name, "type": described(port)}


def _attentions(opened: Opened) -> list[dict[str, Any]]:
    """A row for each kernel and target."""
    manifest = opened.manifest
    calls = Counter(plan_of(step.args) for step in opened.program.steps if step.op == ATTENTION)
    rows = []
    for one in manifest.attentions:
        for target in manifest.targets or (BASE,):
            plan = opened.plan(one.get(target, one[BASE]))
            kernel = next((k.name for k in manifest.kernels if k.plan == plan.digest), "torch operators")
            binaries = [b for b in manifest.binaries if b.plan == plan.digest]
            rows.append(
                {
                    "kernel": kernel,
                    "plan": str(plan.digest),
                    "count": calls[one[BASE]],
                    "target": target,
                    "machine_code": bool(binaries),
                    "runs_here": any(map(runs_here, binaries)),
                }
            )
    return rows
