from __future__ import annotations

from attnc.compiler.machine.amdgcn import parse
from attnc.compiler.machine.flow import blocks, loops, main_loop

TEXT = """
\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
\t.globl\tflash                           ; -- Begin function flash
flash:                                  ; @flash
; %bb.0:
\ts_load_dwordx2 s[2:3], s[0:1], 0x0
\ts_cbranch_scc1 .LBB0_3
.LBB0_1:                                ; =>This Inner Loop Header: Depth=1
\tglobal_load_dwordx4 v[6:9], v[4:5], off
                                        ; implicit-def: $vgpr210 : SGPR spill to VGPR lane
\ts_and_saveexec_b64 s[4:5], vcc
\ts_cbranch_execz .LBB0_2 ; v_mfma_in_a_comment
\tv_mfma_f32_32x32x8_bf16 v[0:15], v[16:17], v[18:19], 0
.LBB0_2:                                ;   in Loop: Header=BB0_1 Depth=1
\ts_or_b64 exec, exec, s[4:5]
\ts_cbranch_scc0 .LBB0_1
\ts_branch .LBB0_3
.LBB0_3:                                ; %.critedge
\tv_mfma_f32_32x32x8_bf16 v[0:15], v[16:17], v[18:19], 0
\ts_endpgm
.Lfunc_end0:
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     0
    s_endpgm
"""


def test_instructions_labels_and_ways() -> None:
    program = parse(TEXT)
    assert [one.name for one in program.instructions if one.targets or not one.falls] == [
        "s_cbranch_scc1", "s_cbranch_execz", "s_cbranch_scc0", "s_branch", "s_endpgm",
    ]  # fmt: skip
    assert len(program.instructions) == 11
    assert program.instructions[4].targets == (".LBB0_2",)
    assert (program.labels[".LBB0_2"], program.labels[".Lfunc_end0"]) == (6, 11)
    assert [one.falls for one in program.instructions[-4:]] == [True, False, True, False]


def test_the_loop_with_the_products() -> None:
    program = parse(TEXT)
    assert len(loops(blocks(program))) == 1
    assert [one.name for one in main_loop(program, ("v_mfma",))] == [
        "global_load_dwordx4", "s_and_saveexec_b64", "s_cbranch_execz", "v_mfma_f32_32x32x8_bf16", "s_or_b64",
        "s_cbranch_scc0",
    ]  # fmt: skip
