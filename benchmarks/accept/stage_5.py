"""Stage 5: ONNX files in and out, and artifacts that run without the compiler."""

from __future__ import annotations

from benchmarks.accept.checks import Check, call, suite
from benchmarks.accept.common import KNOWN_BUGS, MAKE_CHECK, MAKE_TEST

ONNX = "tests/compiler/frontends/onnx"
SUITE_PARTS = 8
TRAP_PARTS = 4

CHECKS = (
    Check(
        "node-tests",
        "ONNX's own node tests: every case that onnxruntime passes is right, at least 70 % of them natively.",
        (
            *(call(f"part-{i}", "benchmarks.onnx_suite:part", str(i), str(SUITE_PARTS)) for i in range(SUITE_PARTS)),
            suite("share", f"{ONNX}/test_suite.py"),
        ),
    ),
    Check("node-tests-fused", "Of the expanded attention cases those without a matrix output are fused.", ()),
    Check(
        "operators",
        "Operators of ai.onnx and com.microsoft against onnxruntime, sizes by name, regions, files that are wrong.",
        (suite("run", ONNX, "--ignore", f"{ONNX}/test_traps.py", "--ignore", f"{ONNX}/test_suite.py"),),
    ),
    Check("models", "Exports of real models compile, fuse as often as expected and are right.", ()),
    Check(
        "traps",
        "At least 30 ONNX graphs that look like attention are right, and each twin is fused.",
        (
            *(
                call(f"pairs-{i}", "benchmarks.accept.onnx_traps:part", str(i), str(TRAP_PARTS))
                for i in range(1, TRAP_PARTS + 1)
            ),
            suite("sides", f"{ONNX}/test_traps.py", "-k", "not test_compiled"),
        ),
    ),
    Check(
        "artifacts",
        "Artifacts run where neither the compiler's packages nor a C++ compiler are, with the same bits; the same "
        "model gives the same bytes; 200 damaged files give a clear error or the right result.",
        (
            suite("file", "tests/runtime/artifact", "tests/runtime/test_exchange.py"),
            suite("save", "tests/compiler/test_artifact.py", "tests/compiler/cli"),
        ),
    ),
    Check(
        "onnx-out",
        "Attentions are written back as one operator exactly where it means the same.",
        (suite("run", "tests/compiler/onnx_out"),),
    ),
    Check("damaged-onnx", "200 damaged ONNX files give a clear error or the right result.", ()),
    KNOWN_BUGS,
    MAKE_CHECK,
    MAKE_TEST,
)
