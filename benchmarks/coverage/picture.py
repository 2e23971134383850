"""Draws the share of attentions fused as bars, attnc's beside those measured for other compilers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.coverage.tally import Row

INDUCTOR_BY_FAMILY = {
    "decoder": (0, 108),
    "encoder": (15, 60),
    "encdec": (6, 92),
    "vision": (44, 73),
    "audio": (6, 26),
    "multimodal": (20, 30),
    "other": (13, 19),
}
"""(fused, sites) that Inductor of torch 2.13 fuses in 141 of these models, same inputs, CPU, float32."""
ONNXSCRIPT = (57, 74)
"""The same of onnxscript 0.7.2, ``rewriter.ort_fusions``, in 28 of them exported to ONNX."""
NAMES = {"encdec": "encoder-decoder"}

WIDTH, LABEL, BAR, GAP, PAD = 720, 150, 18, 8, 16
SCALE = WIDTH - LABEL - 3 * PAD - 130
"""Pixels of 100 %."""
OURS, THEIRS = "#2f6fde", "#9aa4b2"


@dataclass(frozen=True)
class Bar:
    """One bar: fused of sites."""

    label: str
    fused: int
    sites: int
    color: str

    @property
    def share(self) -> float:
        return self.fused / self.sites if self.sites else 0.0


def draw(whole: Row, families: Mapping[str, Row]) -> str:
    """The picture as SVG text: a group for all models, then one a family."""
    inductor = [sum(column) for column in zip(*INDUCTOR_BY_FAMILY.values(), strict=True)]
    groups = [
        (
            "all models",
            [
                Bar("attnc", whole.fused, whole.sites, OURS),
                Bar("onnxscript", *ONNXSCRIPT, THEIRS),
                Bar("Inductor", inductor[0], inductor[1], THEIRS),
            ],
        )
    ]
    for name, row in families.items():
        bars = [Bar("attnc", row.fused, row.sites, OURS)]
        if name in INDUCTOR_BY_FAMILY:
            bars.append(Bar("Inductor", *INDUCTOR_BY_FAMILY[name], THEIRS))
        groups.append((NAMES.get(name, name), bars))
    return _svg(groups)


def _svg(groups: Sequence[tuple[str, Sequence[Bar]]]) -> str:
    parts: list[str] = []
    y = PAD + 2 * BAR
    for title, bars in groups:
        parts.append(_text(PAD, y + BAR - 5, title, "font-weight='bold'"))
        for bar in bars:
            parts += _bar(bar, y)
            y += BAR + 2
        y += GAP
    y += BAR
    head = _text(
        PAD, PAD + 10, "Attentions fused in unmodified Hugging Face models", "font-size='15' font-weight='bold'"
    )
    note = "Bars of other compilers: measured on the part of these models given behind them."
    foot = _text(PAD, y, note, "fill='#667' font-size='11'")
    style = "font-family='system-ui, sans-serif' font-size='12'"
    size = f"width='{WIDTH}' height='{y + PAD}' viewBox='0 0 {WIDTH} {y + PAD}'"
    back = f"<rect width='{WIDTH}' height='{y + PAD}' fill='white'/>"
    return "\n".join(
        [f"<svg xmlns='http://www.w3.org/2000/svg' {size} {style}>", back, head, *parts, foot, "</svg>", ""]
    )


def _bar(bar: Bar, y: int) -> list[str]:
    left, length = LABEL + 70, bar.share * (SCALE - 70)
    figure = f"{bar.share:.0%}  ({bar.fused} of {bar.sites})"
    return [
        _text(left - 6, y + BAR - 5, bar.label, "text-anchor='end'"),
        f"<rect x='{left}' y='{y}' width='{max(length, 1):.1f}' height='{BAR}' rx='2' fill='{bar.color}'/>",
        _text(left + length + 6, y + BAR - 5, figure),
    ]


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f"<text x='{x:.0f}' y='{y:.0f}' {attributes}>{escape(text)}</text>".replace(" >", ">")
