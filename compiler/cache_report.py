"""What keeping keys and values in few bits costs, as a table and as JSON; ``cache_scoring.py`` measures it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnc.compiler.codes import CODES
from attnc.compiler.report import Note

VERSION = 1
MOST_CHANGE = 0.03
"""A greater change of perplexity is warned of."""
CODE = "ATTNC-KV-PERPLEXITY"
HEADINGS = (
    "perplexity",
    "change",
    "mean |Δ logit|",
    "max |Δ logit|",
    "KL, nats",
    "same token",
    "bytes/token",
    "capacity (bf16 = 1)",
)


@dataclass(frozen=True)
class CacheRow:
    """One way to keep keys and values. Differences are from the model's own dtype, at every token of the text."""

    kv: str
    perplexity: float
    change: float
    """Of perplexity, relative."""
    change_error: float
    """One standard error of ``change``, were the text's tokens independent."""
    largest_error: float
    """Of all logits."""
    mean_error: float
    """Mean |difference| of all logits."""
    divergence: float
    """Mean Kullback–Leibler divergence from the model's own distribution of the next token, in nats."""
    same_token: float
    """Share of places where the most probable token is the same."""
    token_bytes: int
    """Bytes of one token's keys and values in all layers, scales included."""
    capacity: float
    """Tokens that fit where one does in bf16."""


@dataclass(frozen=True)
class CacheReport:
    """A text scored with several caches."""

    name: str
    tokens: int
    """Those fed: each judges the one behind it."""
    rows: tuple[CacheRow, ...]
    """The model's own dtype first."""
    notes: tuple[Note, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", tuple(_warning(row) for row in self.rows if not _within(row)))

    def to_json(self) -> str:
        """Versioned JSON."""
        return json.dumps({"version": VERSION, **dataclasses.asdict(self)}, indent=2)

    def table(self) -> Table:
        """The rows as a rich table."""
        title = Text(f"{self.name}: caches of keys and values over {self.tokens} tokens of text")
        table = Table(title=title, title_justify="left", expand=False)
        table.add_column("kept as")
        for heading in HEADINGS:
            table.add_column(heading, justify="right")
        for row in self.rows:
            table.add_row(*_cells(row))
        return table

    def render(self, console: Console) -> None:
        """Print the table and the warnings."""
        console.print(self.table())
        for note in self.notes:
            console.print(Text(note.code, style="yellow").append(f" {note.message}", style="default"))


def _within(row: CacheRow) -> bool:
    return abs(row.change) <= MOST_CHANGE  # false for NaN as well


def _warning(row: CacheRow) -> Note:
    said = f"{row.kv} changes perplexity by {row.change:+.1%}, more than {MOST_CHANGE:.0%}. {CODES[CODE].remedy}"
    return Note(CODE, said)


def _cells(row: CacheRow) -> tuple[str, ...]:
    return (
        row.kv,
        f"{row.perplexity:.3f}",
        f"{row.change:+.2%} ± {row.change_error:.2%}",
        f"{row.mean_error:.3g}",
        f"{row.largest_error:.3g}",
        f"{row.divergence:.2g}",
        f"{row.same_token:.1%}",
        f"{row.token_bytes}",
        f"{row.capacity:.2f}×",
    )
