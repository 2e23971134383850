"""A loaded artifact: called by name or in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnc.runtime.artifact.install import Installed
from attnc.runtime.artifact.manifest import Manifest, Port
from attnc.runtime.artifact.opened import described
from attnc.runtime.exchange import run_named, run_ordered
from attnc.runtime.host_bound import Bound


class LoadedProgram:
    """A compiled model without its compiler.

    ``inputs`` and ``outputs`` say names, dtypes and shapes; ``target`` whose kernels run; ``notes`` holds code and
    reason of what runs slower than it could. What the program writes, inputs and its own state, is written in place;
    its state is its own, and as saved when it is loaded again.
    """

    def __init__(self, manifest: Manifest, bound: Bound, installed: Installed) -> None:
        self.name = manifest.name
        self.inputs: tuple[Port, ...] = manifest.inputs
        self.outputs: tuple[Port, ...] = manifest.outputs
        self.target = installed.target
        self.notes = installed.notes
        self.bound = bound
        self._written = frozenset(port.name for port in manifest.inputs if port.mutated)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Results by name of inputs by name: numpy arrays, torch tensors, or anything with ``__dlpack__``.

        Results are numpy arrays where all arrays given are, else torch tensors. Raises ValueError and TypeError for
        inputs that aren't what the program takes.
        """
        return run_named(self.bound, [port.name for port in self.outputs], inputs, self._written)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """As :meth:`run`, inputs and results in order."""
        return run_ordered(self.bound, inputs, self._written)

    def __repr__(self) -> str:
        given = ", ".join(f"{port.name}: {described(port)}" for port in self.inputs)
        return f"<attnc.LoadedProgram {self.name}({given}) on {self.target}>"
