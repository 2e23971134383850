"""AMD machine code, read from the assembly that LLVM writes."""

from __future__ import annotations

import re

from attnc.compiler.machine.flow import Instruction, Program

LABEL = re.compile(r"^(\.?[A-Za-z_$][\w.$]*):")
INSTRUCTION = re.compile(r"^\s+(?P<name>[a-z]+_\w+)(?P<operands>[^;]*)")
ENDS = ("s_branch", "s_endpgm", "s_setpc")


def parse(text: str) -> Program:
    """Instructions and labels of the code; directives, comments and metadata are left out."""
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.partition(".amdgpu_metadata")[0].splitlines():
        if label := LABEL.match(line):
            labels[label[1]] = len(instructions)
        elif found := INSTRUCTION.match(line):
            name, operands = found["name"], found["operands"].strip()
            jumps = name.startswith(("s_branch", "s_cbranch"))
            targets = (operands,) if jumps else ()
            instructions.append(Instruction(name, operands, targets=targets, falls=not name.startswith(ENDS)))
    return Program(tuple(instructions), labels)
