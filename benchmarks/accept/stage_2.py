"""Stage 2: every spelling, mask and rotation is recognized, with proof; and an IR that people can question."""

from __future__ import annotations

from benchmarks.accept.checks import Check, call, suite
from benchmarks.accept.common import KNOWN_BUGS, MAKE_CHECK, MAKE_TEST

MATRIX = "tests/compiler/test_matrix.py"
COMPOSITIONS = "tests/compiler/fuse/test_compositions.py"
ZOO = "benchmarks.accept.zoo"
PARTS = 8
SIZES = ("sequence", "odd", "dynamic")
"""A word of each id of the test's sizes."""

CHECKS = (
    Check(
        "battery",
        "At least 36 of 38 spellings of attention are fused, none is wrong, and the test names the others with their "
        "codes: f32 and bf16, batch 1 and 2, an odd length, and one compilation for four sizes.",
        (
            suite("float32", "tests/compiler/test_spellings.py"),
            suite("half", MATRIX, "-k", "test_spelling"),
            *(suite(size, MATRIX, "-k", f"test_sizes_of_spelling and {size}") for size in SIZES),
        ),
    ),
    Check(
        "zoo",
        "At least 95 % of the attentions of 361 Hugging Face model types are fused, the others have a code and a "
        "reason; no output is outside the numerics policy, nothing crashes; every rotary model has its attn.rope, "
        "every model with a relative bias a closed form or a table of O(S) entries, but for exceptions listed with "
        "reasons.",
        (
            *(call(f"part-{i}", f"{ZOO}:part", str(i), str(PARTS)) for i in range(1, PARTS + 1)),
            call("verdict", f"{ZOO}:verdict", last=True),
        ),
    ),
    Check(
        "rotary",
        "A rotation is rewritten only with proof; the rewrite equals the program in float64 at positions up to 10⁶.",
        (suite("proofs", "tests/compiler/rotary"),),
    ),
    Check(
        "bias",
        "Biases of relative position become closed forms or tables of O(S) entries.",
        (suite("tables", "tests/compiler/passes"),),
    ),
    Check(
        "twins",
        "At least 60 traps, each with a twin that is attention: no trap gets its twin's meaning, every twin is fused.",
        (
            suite("float32", "tests/compiler/test_traps.py"),
            suite("bf16", MATRIX, "-k", "test_pair and bfloat16"),
            suite("f16", MATRIX, "-k", "test_pair and float16 and not bfloat16"),
            suite("forms", "tests/compiler/fuse", "-k", "not test_compositions"),
        ),
    ),
    KNOWN_BUGS,
    Check(
        "compositions",
        "300 random compositions of mask, bias, scale, head form, layout, softmax and dtype are right, and each value "
        "of each of these is fused at least 10 times.",
        (
            suite("count", COMPOSITIONS, "-k", "often or few"),
            *(suite(f"part-{i}", COMPOSITIONS, "-k", f"part-{i}") for i in range(6)),
        ),
    ),
    Check(
        "dynamic",
        "One compilation serves 10 pairs of batch and length, for 12 decoders.",
        (suite("decoders", "tests/compiler/test_dynamic.py"),),
    ),
    Check(
        "compile-time",
        "A Llama of 32 layers takes at most 5 s in the passes, on one core, median of 5.",
        (call("llama-32", "benchmarks.accept.measures:compile_time", retries=1),),
    ),
    Check(
        "dump",
        "The page of a dump of MiniLM and of a Gemma-like model in Chromium: every op is found by search, every site "
        "shows its picture and its certificate.",
        (suite("browser", "tests/compiler/inspection/test_browser.py"),),
    ),
    Check(
        "questions",
        "Dumps, differences, bisection, pictures and explanations answer from the command line.",
        (
            suite("inspection", "tests/compiler/inspection", "--ignore=tests/compiler/inspection/test_browser.py"),
            suite("cli", "tests/compiler/cli"),
        ),
    ),
    Check(
        "models",
        "The reference models cover the transformer's history; every concept has its row, and no link is dead.",
        (
            suite("eager", "tests/models"),
            suite("compiled", "tests/compiler/test_models.py"),
            suite("concepts", "tests/test_docs_links.py"),
        ),
    ),
    MAKE_CHECK,
    MAKE_TEST,
)
