"""``make gpu-check``: make the bundle and run its script, where there is a GPU."""

from __future__ import annotations

import subprocess
import sys

import torch


def main() -> int:
    """Returns the exit status: the script's, or 0 with a line that says so where there is no GPU."""
    if not torch.cuda.is_available():
        print("not run: no GPU")
        return 0
    from benchmarks.gpu import bundle

    bundle.main([])
    results = bundle.FOLDER.with_name("gpu-results.json")
    command = [sys.executable, str(bundle.FOLDER / "check.py"), str(bundle.FOLDER), "--out", str(results)]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
