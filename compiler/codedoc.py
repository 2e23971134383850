"""Writes docs/codes.md from the registered codes: ``python -m attnc.compiler.codedoc docs/codes.md``."""

from __future__ import annotations

import sys
from pathlib import Path

from attnc.compiler.codes import CODES

LEVELS = {
    "fused": "Fused",
    "left": "Attentions left to the host",
    "other": "Softmaxes that are no attention",
    "downgrade": "Right, but slower or heavier than it could be",
    "inexact": "Less exact than in the model's own dtype",
    "host": "Whole graphs left to the host",
    "derive": "Models without an incremental program",
    "artifact": "Programs that no artifact can hold",
    "error": "Errors",
}


def document() -> str:
    """The page, one section for each level."""
    lines = [
        "# Codes",
        "",
        "Every softmax a report lists carries one of these codes, and so does every fall-back. Codes are stable:",
        "scripts may test for them. This page is generated from `compiler/codes.py`.",
        "",
        "For an attention that is left, a report says more than its code: `nearest`, the form it would have without",
        "what blocks it; `blocker`, the op and your line; `edit`, what to change there. Where possible, the op is",
        "taken out of a copy of the graph: if something else would then be in the way, the edit names it.",
    ]
    for level, title in LEVELS.items():
        lines += ["", f"## {title}", "", "| code | says | because | what to do |", "|---|---|---|---|"]
        lines += [
            f"| `{name}` | {code.text} | {code.cause} | {code.remedy} |"
            for name, code in sorted(CODES.items())
            if code.level == level
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document(), encoding="utf-8")
