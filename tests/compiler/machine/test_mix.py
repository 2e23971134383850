from __future__ import annotations

import dataclasses

import pytest

from attnc.codegen.targets import Gpu, capability
from attnc.compiler.machine.flow import Instruction
from attnc.compiler.machine.mix import mix_of


def gpu(name: str) -> Gpu:
    found = capability(name).gpu
    assert found is not None
    return found


def code(text: str) -> list[Instruction]:
    return [Instruction(name) for name in text.split()]


NVIDIA = """
    HGMMA.64x64x16.F32.BF16 HGMMA.64x64x16.F32.BF16 WARPGROUP.ARRIVE WARPGROUP.DEPBAR.LE DEPBAR.LE LDGDEPBAR
    MUFU.EX2 MUFU.RCP FFMA.FTZ FADD FMUL FMNMX FMNMX3 FFMA2 HFMA2.BF16 F2FP.BF16.F32.PACK_AB I2FP.F32.S32 F2I.FTZ
    FSEL SEL USEL FSETP.GT.AND ISETP.GE.AND UISETP.GE.AND PLOP3.LUT IMAD.MOV.U32 IADD3
    LDGSTS.E.BYPASS.LTC128B.128 LDGSTS.E.BYPASS.128 LDGSTS.E.LTC128B.64 LDG.E LDG.E.U16 LDG.E.U8.CONSTANT LDG.E.LTC128B
    LDS.128 LDS LDSM.16.MT88.4 UTMALDG.2D LDTM.x32 STG.E.128 STS.64 STL LDL.LU LDL.64
    BAR.SYNC.DEFER_BLOCKING SYNCS.PHASECHK.TRANS64.TRYWAIT MEMBAR.ALL.CTA
"""


def test_nvidia_instructions_by_kind() -> None:
    mix = mix_of(code(NVIDIA), gpu("sm_90"))
    assert (mix.length, mix.matrix) == (len(NVIDIA.split()), 2)
    assert mix.kinds == {
        "wait": 1, "mufu": 2, "float": 7, "convert": 3, "select": 2, "compare": 2, "load": 11, "store": 2, "local": 3,
        "barrier": 3,
    }  # fmt: skip
    assert mix.mask_signature == {"ISETP": 1, "FSEL": 1, "SEL": 1, "FSETP": 1}
    assert mix.non_matrix_per_matrix == (mix.length - 2) / 2


def test_a_hint_to_the_cache_is_no_width() -> None:
    loads = mix_of(code(NVIDIA), gpu("sm_90")).loads
    assert loads == {
        "LDGSTS.128": 2, "LDGSTS.64": 1, "LDG.32": 2, "LDG.16": 1, "LDG.8": 1, "LDS.128": 1, "LDS.32": 1, "LDSM": 1,
        "UTMALDG": 1,
    }  # fmt: skip


AMD = """
    v_mfma_f32_32x32x8_bf16 v_exp_f32_e32 v_rcp_f32_e32 v_fma_f32 v_fmac_f32_e32 v_pk_mul_f32 v_max3_f32 v_add_f32_e32
    v_add_u32_e32 v_cmp_o_f32_e32 v_cmp_le_i32_e64 v_cndmask_b32_e32 v_cvt_f16_f32_e32 v_perm_b32
    global_load_dwordx4 buffer_load_dword global_load_ushort global_load_short_d16_hi global_load_ubyte_d16
    global_load_lds_dwordx4 s_load_dwordx8 ds_read_b64 ds_read2st64_b64 ds_read_u16_d16 ds_read_b64_tr_b16
    ds_bpermute_b32 ds_write_b128 global_store_dwordx2 scratch_load_dwordx2 scratch_store_dword s_barrier s_waitcnt
"""


def test_amd_instructions_by_kind() -> None:
    mix = mix_of(code(AMD), gpu("gfx942"))
    assert (mix.length, mix.matrix) == (len(AMD.split()), 1)
    assert mix.kinds == {
        "mufu": 2, "float": 5, "compare": 2, "select": 1, "convert": 1, "load": 10, "store": 2, "local": 2,
        "barrier": 1, "wait": 1,
    }  # fmt: skip
    assert mix.loads == {
        "global_load.128": 1, "buffer_load.32": 1, "global_load.16": 2, "global_load.8": 1, "global_load_lds.128": 1,
        "ds_read.64": 2, "ds_read2st64.64": 1, "ds_read.16": 1,
    }  # fmt: skip
    assert mix.mask_signature == {"v_cmp": 2, "v_cndmask": 1}


@pytest.mark.parametrize(("target", "name"), [("sm_80", "HGMMA.64x8"), ("sm_90", "HMMA.16816"), ("sm_100", "HGMMA")])
def test_products_of_another_machine_do_not_count(target: str, name: str) -> None:
    mix = mix_of(code(name), gpu(target))
    assert (mix.matrix, mix.non_matrix_per_matrix) == (0, None)
    assert mix_of(code(name), dataclasses.replace(gpu(target), matrix=(name[:4],))).matrix == 1
