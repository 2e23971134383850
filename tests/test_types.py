"""mypy, strict, over the package as it is imported.

The folders are ``attnc.ir``, ``attnc.compiler``, … only once installed. ``build/ns/attnc`` links them under
these names, for mypy and for editors; checking ``ir/`` directly would give every class two names.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("codegen", "compiler", "ir", "models", "runtime")
LINKS = ROOT / "build" / "ns" / "attnc"


def link_package() -> None:
    """Make ``build/ns/attnc``: a link per folder, and one per file of ``compiler/_root``."""
    LINKS.mkdir(parents=True, exist_ok=True)
    wanted = {folder: ROOT / folder for folder in FOLDERS}
    wanted |= {path.name: path for path in (ROOT / "compiler" / "_root").iterdir() if path.is_file()}
    for old in LINKS.iterdir():
        if wanted.get(old.name) != old.resolve():
            old.unlink()
    for name, target in wanted.items():
        if not (LINKS / name).exists():
            (LINKS / name).symlink_to(target)


def mypy(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.check
def test_the_package_is_typed() -> None:
    link_package()
    checked = mypy("-p", "attnc")
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.check
def test_a_wrong_argument_is_seen(tmp_path: Path) -> None:
    """The links are what is checked: a planted error must be found through them."""
    link_package()
    planted = tmp_path / "planted.py"
    planted.write_text("from attnc.ir.types import size\n\nsize(3)\n")
    checked = mypy(str(planted))
    assert checked.returncode == 1
    assert 'has incompatible type "int"; expected "str"' in checked.stdout
