"""From a compiled kernel to the files that a process without a compiler launches it from."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from attnc.codegen.targets import capability
from attnc.compiler.machine.select import Selected
from attnc.runtime.gpu.binary import sha256, write
from attnc.runtime.gpu.record import BinaryRecord, Parameter, Scratch


def package(selected: Selected, name: str, folder: Path) -> Path:
    """Write machine code, record and source of a kernel; returns the path of the record. Raises OSError."""
    binary, gpu = selected.binary, capability(selected.report.target).gpu
    assert gpu is not None  # nothing else is compiled
    record = BinaryRecord(
        name=name,
        kernel=binary.kernel,
        target=binary.target,
        backend=gpu.backend,
        arch=gpu.arch,
        shared=binary.shared,
        num_warps=binary.num_warps,
        threads=binary.threads,
        plan=selected.plan.digest,
        code_sha256=sha256(binary.code),
        source_sha256=sha256(selected.source.text),
        parameters=tuple(Parameter(**dataclasses.asdict(p)) for p in selected.launch.parameters),
        constants=dict(selected.launch.constants),
        scratch=Scratch(program=binary.global_scratch, profile=binary.profile_scratch),
        descriptors=binary.descriptors,
    )
    return write(folder, record, binary.code, selected.source.text)
