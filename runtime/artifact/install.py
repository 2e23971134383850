"""From the kernels of an artifact to plans that can be called: machine code, else source, else torch operators."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path

from attnc.runtime import config, kernels, launcher
from attnc.runtime.artifact.machine import builds_here, runs_here
from attnc.runtime.artifact.manifest import BASE, Binary, Kernel, Manifest
from attnc.runtime.artifact.opened import ATTENTION, PLAN, Opened, plan_of, reading
from attnc.runtime.errors import BuildError
from attnc.runtime.host_program import HostProgram, Step
from attnc.runtime.store import Store

NO_COMPILER = "ATTNC-NO-COMPILER"


@dataclass(frozen=True)
class Installed:
    """How the attentions of an artifact run here."""

    target: str
    """Whose plans were taken; ``base``: those the program names."""
    notes: tuple[tuple[str, str], ...]
    """Code and reason of what runs slower than it could."""


def choose_target(manifest: Manifest) -> str:
    """The first target with machine code for this processor, else the first that can be built for it, else ``base``."""
    if not manifest.attentions:
        return next(iter(manifest.targets), BASE)
    whole = {target: plans for target in manifest.targets if (plans := _plans(manifest, target))}
    code = [target for target, plans in whole.items() if all(_binary(manifest, plan) for plan in plans)]
    text = [target for target, plans in whole.items() if all(_buildable(manifest, plan) for plan in plans)]
    return next(iter([*code, *text]), BASE)


def install(opened: Opened, target: str, native: bool) -> Installed:
    """Register the plans of one target. Raises ArtifactError, and BuildError where a compiler rejects a source."""
    manifest = opened.manifest
    plans = list(dict.fromkeys(one.get(target, one[BASE]) for one in manifest.attentions))
    if native and plans:
        _offer_launcher(opened)
    reasons = [reason for plan in plans if (reason := _install(opened, plan, native))]
    notes = tuple((NO_COMPILER, reason) for reason in dict.fromkeys(reasons))
    for code, reason in notes if native else ():
        warnings.warn(
            f"attnc: {code}: attention of {opened.container.path.name} runs on plain torch operators (right, but "
            f"slower): {reason}",
            RuntimeWarning,
            stacklevel=4,
        )
    return Installed(target, notes)


def retargeted(opened: Opened, target: str) -> HostProgram:
    """The program with the plans of a target."""
    return replace(opened.program, steps=tuple(_step(opened.manifest, step, target) for step in opened.program.steps))


def _step(manifest: Manifest, step: Step, target: str) -> Step:
    if step.op != ATTENTION:
        return step
    plan = manifest.target_plan(plan_of(step.args), target)
    return step if plan is None else replace(step, args=(*step.args[:PLAN], plan, *step.args[PLAN + 1 :]))


def _plans(manifest: Manifest, target: str) -> list[int]:
    """The plans of a target; none where it lacks one."""
    found = [one[target] for one in manifest.attentions if target in one]
    return found if len(found) == len(manifest.attentions) else []


def _binary(manifest: Manifest, plan: int) -> Binary | None:
    return next((b for b in manifest.binaries if b.plan == plan and runs_here(b)), None)


def _kernel(manifest: Manifest, plan: int) -> Kernel | None:
    return next((kernel for kernel in manifest.kernels if kernel.plan == plan and kernel.language == "c++"), None)


def _buildable(manifest: Manifest, plan: int) -> bool:
    kernel = _kernel(manifest, plan)
    return kernel is not None and builds_here(kernel)


def _install(opened: Opened, digest: int, native: bool) -> str | None:
    """Register one plan; why it runs on torch operators, or None."""
    plan, kernel = opened.plan(digest), _kernel(opened.manifest, digest)
    if not native or kernel is None:
        kernels.adopt_plan(plan, None)
        return "native=False: no code of the file is used" if kernel else "the file has no kernel for processors"
    binary, buildable = _binary(opened.manifest, digest), builds_here(kernel)
    with reading(opened.container, binary.entry if binary else kernel.source):
        library = _library(opened, binary) if binary else None
        try:
            kernels.adopt_plan(plan, opened.source(kernel) if buildable else None, library)
        except BuildError as error:
            raise opened.container.error(str(error), binary.entry if binary else kernel.source) from error
    if kernels.kernel(digest) is not None:
        launcher.renew(digest)
        return None
    if buildable:
        return kernels.without_kernel(digest)
    return f"the file has no machine code for this processor, and source only for {kernel.target} of its version"


def _library(opened: Opened, binary: Binary) -> Path:
    sha256 = opened.manifest.entries[binary.entry].sha256
    return Store(config.current().cache_dir).keep_library(sha256, opened.container.view(binary.entry))


def _offer_launcher(opened: Opened) -> None:
    for binary in opened.manifest.binaries:
        if binary.plan is None and runs_here(binary):
            launcher.offer(_library(opened, binary))
