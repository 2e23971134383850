"""Stage 3: the same plans as Triton kernels for GPUs, proven without one."""

from __future__ import annotations

from benchmarks.accept.checks import Check, call, suite
from benchmarks.accept.common import KNOWN_BUGS, MAKE_CHECK, MAKE_TEST
from benchmarks.machine import GATED, TARGETS

MACHINE = "benchmarks.machine"
MATRIX = "tests/triton/test_kernel_matrix.py"
PARTS, SHARDS = 3, 18

CHECKS = (
    Check(
        "interpreter",
        "Thirteen kinds of attention, six head dimensions, odd lengths, length 1 and dead rows, in float32, float16 "
        "and bfloat16, meet the numerics policy in the interpreter of three versions of Triton.",
        (
            suite("repairs", "tests/triton", f"--ignore={MATRIX}"),
            *(
                suite(f"product-{shard:02}", MATRIX, "-k", f"test_everything and shard-{shard:02}")
                for shard in range(SHARDS)
            ),
        ),
    ),
    Check(
        "backends",
        "Every plan that the C++ backend runs is emitted for Triton too, and gives the same result.",
        (suite("plans", "tests/codegen", "--ignore=tests/codegen/test_triton_alone.py"),),
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
    KNOWN_BUGS,
    MAKE_CHECK,
    MAKE_TEST,
)
