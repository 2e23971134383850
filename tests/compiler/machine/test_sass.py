from __future__ import annotations

import pytest

from attnc.compiler.machine.build import Binary
from attnc.compiler.machine.flow import blocks, loops, main_loop
from attnc.compiler.machine.sass import disassemble, parse

TEXT = """
\t.headerflags\t@"EF_CUDA_SM90"
        .size           flash,(.L_x_6 - flash)
flash:
.text.flash:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/               @P0 BRA `(.L_x_1) ;
.L_x_0:
        /*0020*/                   WARPGROUP.ARRIVE ;
        /*0030*/                   HGMMA.64x64x16.F32.BF16 R24, gdesc[UR8], RZ, !UPT, gsb0 ;
        /*0040*/              @!P3 BRA `(.L_x_2) ;
.L_x_3:
        /*0050*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
        /*0060*/                   BRA.U !UP0, `(.L_x_0) ;
.L_x_1:
        /*0070*/               @P6 EXIT ;
        /*0080*/              @!PT LDS RZ, [RZ] ;
        /*0090*/                   EXIT ;
.L_x_2:
        /*00a0*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P3, [UR19], R4 ;
        /*00b0*/                   BSSY B0, `(.L_x_1) ;
        /*00c0*/              @!P3 BRA `(.L_x_2) ;
        /*00d0*/                   BRA `(.L_x_3) ;
.L_x_5:
        /*00e0*/                   BRX R2 -0x10 (*"BRANCH_TARGETS .L_x_0,.L_x_1"*) ;
.L_x_6:
"""


def test_instructions_with_predicates_and_operands() -> None:
    program = parse(TEXT)
    assert len(program.instructions) == 15
    product = program.instructions[3]
    assert (product.name, product.guard) == ("HGMMA.64x64x16.F32.BF16", "")
    assert product.operands == "R24, gdesc[UR8], RZ, !UPT, gsb0"
    assert program.instructions[4].guard == "@!P3"
    assert program.labels == {".L_x_0": 2, ".L_x_3": 5, ".L_x_1": 7, ".L_x_2": 10, ".L_x_5": 14, ".L_x_6": 15}


def test_where_control_may_go() -> None:
    """A guard before a jump, a condition among its operands, a table of targets; a scope's end is no target."""
    by_address = {0x10 * at: one for at, one in enumerate(parse(TEXT).instructions)}
    ways = {address: (one.targets, one.falls) for address, one in by_address.items() if one.targets or not one.falls}
    assert ways == {
        0x10: ((".L_x_1",), True),
        0x40: ((".L_x_2",), True),
        0x60: ((".L_x_0",), True),
        0x90: ((), False),
        0xC0: ((".L_x_2",), True),
        0xD0: ((".L_x_3",), False),
        0xE0: ((".L_x_0", ".L_x_1"), False),
    }


def test_a_wait_out_of_line_belongs_to_the_loop() -> None:
    program = parse(TEXT)
    assert len(loops(blocks(program))) == 2  # the main loop and the spin in it
    body = main_loop(program, ("HGMMA",))
    assert len(body) == 9
    assert not {"EXIT", "LDS", "LDC", "BRX"} & {one.name for one in body}


def test_machine_code_is_read(hopper: Binary) -> None:
    program = parse(disassemble(hopper.code))
    assert len(program.instructions) > 500
    assert program.instructions[-1].name in ("BRA", "NOP")
    assert len(loops(blocks(program))) >= 2


def test_what_is_no_machine_code_is_refused() -> None:
    with pytest.raises(RuntimeError, match="nvdisasm"):
        disassemble(b"no cubin")
