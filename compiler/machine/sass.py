"""NVIDIA machine code: disassembled by nvdisasm, which comes with Triton, and read."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
from pathlib import Path

from attnc.compiler.machine.flow import Instruction, Program

LABEL = re.compile(r"^(\.L_[\w$]+):$")
INSTRUCTION = re.compile(r"^/\*[0-9a-f]+\*/ +(?P<guard>@!?U?P\w+ +)?(?P<name>[A-Z][\w.]*)(?P<operands>.*?) *;")
TARGET = re.compile(r"\.L_[\w$]+")
JUMPS = {"BRA", "BRX", "BRXU", "JMP", "JMX"}
ENDS = {"EXIT", "RET"}
ALWAYS = {"", "@PT", "@UPT"}


def disassemble(code: bytes) -> str:
    """The text of a cubin. Raises RuntimeError where Triton, which brings the tool, is missing or the tool fails."""
    triton = importlib.util.find_spec("triton")
    if triton is None or triton.origin is None:
        raise RuntimeError("nvdisasm comes with Triton, which is not installed")
    tool = Path(triton.origin).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        done = subprocess.run([tool, "-c", file.name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"nvdisasm: {done.stderr.strip()}")
    return done.stdout


def parse(text: str) -> Program:
    """Instructions and labels of nvdisasm's text; everything else in it is left out."""
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in map(str.strip, text.splitlines()):
        if label := LABEL.match(line):
            labels[label[1]] = len(instructions)
        elif found := INSTRUCTION.match(line):
            instructions.append(_instruction(found["name"], found["operands"].strip(), (found["guard"] or "").strip()))
    return Program(tuple(instructions), labels)


def _instruction(name: str, operands: str, guard: str) -> Instruction:
    """A jump may have its condition before it or among its operands: ``BRA.U !UP0, `(.L_x_4)``."""
    base = name.partition(".")[0]
    jumps = base in JUMPS
    condition = base == "BRA" and not operands.startswith("`(")
    falls = not (jumps or base in ENDS) or guard not in ALWAYS or condition
    return Instruction(name, operands, guard, tuple(TARGET.findall(operands)) if jumps else (), falls)
