from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # machine_samples

import machine_samples as samples

from attnc.codegen.targets import capability
from attnc.compiler.machine.build import Binary, compile_kernel
from attnc.compiler.machine.report import KernelReport, analyse


@pytest.fixture(scope="session")
def hopper() -> Binary:
    """The flash attention for sm_90, compiled once for the fast tests."""
    return compile_kernel(samples.TEXT, samples.launch(), capability("sm_90"))


@pytest.fixture(scope="session")
def hopper_report(hopper: Binary) -> KernelReport:
    return analyse(hopper, capability("sm_90"))
