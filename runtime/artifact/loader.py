"""Loads an artifact, ready to be called."""

from __future__ import annotations

from pathlib import Path

from attnc.runtime.artifact.install import choose_target, install, retargeted
from attnc.runtime.artifact.loaded import LoadedProgram
from attnc.runtime.artifact.manifest import BASE, PROGRAM
from attnc.runtime.artifact.opened import Opened, open_artifact, reading


def _register_regions(opened: Opened) -> None:
    """Make the ONNX models of a file callable. Raises ArtifactError for one that has another name than its content."""
    from attnc.runtime.onnx_region import Region, entry_of, register_region

    for name in opened.manifest.blobs:
        if entry_of(register_region(Region(bytes(opened.container.view(name))))) != name:
            raise opened.container.error("its name is not that of its content", name)


def load(path: str | Path, *, native: bool = True) -> LoadedProgram:
    """The program of an artifact.

    An artifact is as trusted as a program: its hashes show that it is whole, not where it comes from. Kernels are taken
    from its machine code where that is for this processor, else built from its source where there is a compiler, else
    plain torch operators do their work, with a warning. ``native=False``: neither its machine code nor its source is
    used.

    Raises ArtifactError for a file that is none, is damaged or of another version, BuildError for a source that a
    compiler rejects.
    """
    opened = open_artifact(path)
    _register_regions(opened)
    constants = opened.constants()
    target = choose_target(opened.manifest) if native else BASE
    with reading(opened.container, PROGRAM):
        bound = retargeted(opened, target).bind(constants)
    return LoadedProgram(opened.manifest, bound, install(opened, target, native))
