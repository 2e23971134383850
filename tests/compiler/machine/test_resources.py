from __future__ import annotations

import pytest

from attnc.compiler.machine.resources import Resources, from_amdgcn, from_ptxas

LOG = """ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due to x
ptxas info    : 11 bytes gmem
ptxas info    : Compiling entry function 'flash' for 'sm_90a'
ptxas info    : Function properties for helper
    800 bytes stack frame, 801 bytes spill stores, 802 bytes spill loads
ptxas info    : Function properties for flash
    936 bytes stack frame, 2004 bytes spill stores, 1732 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 936 bytes cumulative stack size
"""
METADATA = """\tv_add_u32 v0, v0, v1 ; .vgpr_count: 3
amdhsa.kernels:
  - .agpr_count:     32
    .private_segment_fixed_size: 524
    .sgpr_spill_count: 4
    .vgpr_count:     211
    .vgpr_spill_count: 130
"""


def test_ptxas_of_the_kernel_and_not_of_its_helper() -> None:
    said = "C7511 wgmma.mma_async instructions are serialized due to x"
    assert from_ptxas(LOG, "flash") == Resources(255, 2004, 1732, 936, (said,))


def test_the_newer_ptxas_says_the_same_under_another_name() -> None:
    newer = LOG.replace("ptxas info", "ptxas-blackwell info")
    assert from_ptxas(newer, "flash") == from_ptxas(LOG, "flash")


@pytest.mark.parametrize(("missing", "kernel"), [("Used 255", "flash"), ("spill stores", "flash"), ("", "flas")])
def test_silence_is_no_zero(missing: str, kernel: str) -> None:
    log = LOG.replace(missing, "") if missing else LOG
    with pytest.raises(ValueError, match="does not say"):
        from_ptxas(log, kernel)


def test_metadata_of_amd_code() -> None:
    """Scalar registers spilled to lanes of vector ones are no traffic."""
    assert from_amdgcn(METADATA) == Resources(211, 520, 520, 524)


@pytest.mark.parametrize("entry", [".vgpr_count", ".vgpr_spill_count", ".private_segment_fixed_size"])
def test_missing_metadata_is_no_zero(entry: str) -> None:
    with pytest.raises(ValueError, match=entry):
        from_amdgcn(METADATA.replace(entry, ".other"))
