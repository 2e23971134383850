"""attnc: an attention compiler.

``torch.compile(model, backend="attnc")`` is enough to use it. Everything here is loaded on first use, so that
``import attnc.ir`` or ``import attnc.runtime`` loads no more than that layer.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnc.compiler.api import Program, compile, explain, reports
    from attnc.compiler.backend import backend
    from attnc.compiler.cache_report import CacheReport
    from attnc.compiler.cache_scoring import score_caches
    from attnc.compiler.derive.past.roles import InputRole, ModelCache
    from attnc.compiler.derive.refusal import NotDerivable
    from attnc.compiler.generator import Generation, Generator
    from attnc.compiler.report import Report, Site
    from attnc.compiler.unsavable import NotSavable
    from attnc.runtime.artifact.loaded import LoadedProgram
    from attnc.runtime.artifact.loader import load
    from attnc.runtime.errors import ArtifactError
    from attnc.runtime.sampling_params import SamplingParams

__version__ = "0.1.0"
__all__ = [
    "ArtifactError",
    "CacheReport",
    "Generation",
    "Generator",
    "InputRole",
    "LoadedProgram",
    "ModelCache",
    "NotDerivable",
    "NotSavable",
    "Program",
    "Report",
    "SamplingParams",
    "Site",
    "__version__",
    "backend",
    "compile",
    "explain",
    "load",
    "reports",
    "score_caches",
]

_HOMES = {
    "ArtifactError": "attnc.runtime.errors",
    "CacheReport": "attnc.compiler.cache_report",
    "Generation": "attnc.compiler.generator",
    "Generator": "attnc.compiler.generator",
    "InputRole": "attnc.compiler.derive.past.roles",
    "LoadedProgram": "attnc.runtime.artifact.loaded",
    "ModelCache": "attnc.compiler.derive.past.roles",
    "NotDerivable": "attnc.compiler.derive.refusal",
    "NotSavable": "attnc.compiler.unsavable",
    "Program": "attnc.compiler.api",
    "Report": "attnc.compiler.report",
    "SamplingParams": "attnc.runtime.sampling_params",
    "Site": "attnc.compiler.report",
    "backend": "attnc.compiler.backend",
    "compile": "attnc.compiler.api",
    "explain": "attnc.compiler.api",
    "load": "attnc.runtime.artifact.loader",
    "reports": "attnc.compiler.api",
    "score_caches": "attnc.compiler.cache_scoring",
}


def __getattr__(name: str) -> object:
    """Load a public name from the module that owns it. Raises AttributeError for any other name."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'attnc' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *__all__})
