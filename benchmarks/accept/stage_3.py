"""Stage 3: the same plans as Triton kernels for GPUs, proven without one."""

from __future__ import annotations

from benchmarks.accept.checks import Check, call, suite
from benchmarks.accept.common import KNOWN_BUGS, MAKE_CHECK, MAKE_TEST
from benchmarks.machine import GATED, TARGETS

MACHINE = "benchmarks.machine"
MATRIX = "tests/triton/test_kernel_matrix.py"
PARTS, SHARDS = 3, 18
EVERYWHERE = {"spellings": 3, "traps": 6, "models": 6, "spellings-in-half": 5, "sizes": 12, "traps-in-half": 12}
"""In how many parts the tests of stages 1 and 2 are run on Triton's kernels."""

CHECKS = (
    Check(
        "interpreter",
        "Thirteen kinds of attention, six head dimensions, odd lengths, length 1 and dead rows, in float32, float16 "
        "and bfloat16, meet the numerics policy in the interpreter of three versions of Triton.",
        (
            suite(
                "repairs",
                "tests/triton",
                "-k",
                "not test_everything and not test_pairs and not test_suite and not paged and not kv_write",
            ),
            *(
                suite(f"product-{shard:02}", MATRIX, "-k", f"test_everything and shard-{shard:02}")
                for shard in range(SHARDS)
            ),
        ),
    ),
    Check(
        "backends",
        "Every plan that the C++ backend runs in the tests of stages 1 and 2 is emitted for Triton too, compiles for "
        "sm_90, and gives the right result in the interpreter; one set of tests runs kernels of both backends.",
        (
            suite("plans", "tests/codegen", "--ignore=tests/codegen/test_triton_alone.py"),
            *(
                suite(f"{name}-{part:02}", f"tests/triton/test_everywhere.py::test_suite[{name}-{part:02}]")
                for name, parts in EVERYWHERE.items()
                for part in range(parts)
            ),
        ),
    ),
    Check(
        "machine",
        "Every kind of kernel at head dimension 128, plain causal at 40 to 256 and in float32 compile for nine GPUs; "
        "for sm_80, sm_90 and sm_100 without spills, with tensor cores and wide loads; where no key is masked, a mask "
        "costs nothing.",
        (
            *(
                call(f"{target}-{i}", f"{MACHINE}:part", target, str(i), str(PARTS))
                for target in TARGETS
                for i in range(PARTS)
            ),
            *(call(f"{target}-oldest", f"{MACHINE}:oldest", target) for target in GATED),
            call("gates", f"{MACHINE}:verdict", last=True),
        ),
    ),
    Check(
        "alone",
        "Emitted files of more than 10 attentions check themselves where only torch and triton are installed.",
        (suite("run", "tests/codegen/test_triton_alone.py"),),
    ),
    Check(
        "ahead-of-time",
        "`attnc kernels` reports what a GPU would run and why; compiled code has its record, is launched through the "
        "driver, and falls back to its source; under Inductor a kernel is a user's Triton kernel.",
        (
            suite("build", "tests/compiler/machine", "tests/compiler/cli/test_kernels.py"),
            suite("launch", "tests/runtime/gpu", "tests/runtime/test_inlined.py"),
        ),
    ),
    Check(
        "gpu-script",
        "The script for a machine with a GPU is right as far as it goes without one, and says so where there is none.",
        (suite("script", "tests/benchmarks/test_gpu.py"),),
    ),
    KNOWN_BUGS,
    MAKE_CHECK,
    MAKE_TEST,
)
