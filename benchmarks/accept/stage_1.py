"""Stage 1: an unmodified transformer goes in, fused attention comes out, on a CPU, readable at every step."""

from __future__ import annotations

from benchmarks.accept.checks import Check, call, suite
from benchmarks.accept.common import KNOWN_BUGS, MAKE_CHECK, MAKE_TEST

MEASURES = "benchmarks.accept.measures"
MATRIX = "tests/compiler/test_matrix.py"
PARTS = {
    "ours": "attnc",
    "llama": "llama and not attnc",
    "mistral": "mistral and not attnc",
    "qwen3": "qwen3",
    "gemma3": "gemma3",
    "bert": "bert and not attnc",
    "gpt2": "gpt2 and not attnc",
    "vision-speech": "(vit or whisper)",
}

CHECKS = (
    Check(
        "demo",
        "`make demo` on a clean clone: MiniLM with real weights, 6 of 6 fused, numerics policy met, similar sentences "
        "closer than unrelated ones; then the Llama-like and Mistral-like models at S=2048, timed against eager and "
        "torch.compile in the same run.",
        (call("install", f"{MEASURES}:install_clone"), call("run", f"{MEASURES}:demo_in_clone", retries=1)),
    ),
    Check(
        "models",
        "All sites fused and right, f32 and bf16, padding mask, dynamic sizes (5 lengths, 3 batches, no recompilation "
        "by us): the families of models/ and Hugging Face llama, mistral, qwen3, gemma3, bert, gpt2, vit, "
        "whisper, eager and sdpa, unmodified; each once with Inductor, once with loss.backward().",
        tuple(
            suite(f"{test}-{part}", MATRIX, "-k", f"test_{test} and {words}")
            for test in ("aten", "inductor", "backward")
            for part, words in PARTS.items()
        ),
    ),
    Check(
        "spellings",
        "At least 20 of 38 spellings of attention are fused; none is wrong.",
        (
            suite("float32", "tests/compiler/test_spellings.py"),
            suite("half", MATRIX, "-k", "test_spelling"),
        ),
    ),
    KNOWN_BUGS,
    Check(
        "twins",
        "Every trap has a twin that differs in one op and is attention: none of at least 15 pairs is wrong, every twin "
        "is fused.",
        (
            suite("float32", "tests/compiler/test_traps.py"),
            suite("half", MATRIX, "-k", "test_pair"),
        ),
    ),
    Check(
        "round-trip",
        "Import then export is the identity on 20 tiny Hugging Face models; property tests of text round-trip, pass "
        "idempotence and lift against execution pass.",
        (
            suite("identity", "tests/compiler/frontends", "tests/compiler/host", "-m", "slow"),
            suite("properties", "tests/ir", "tests/compiler/lift", "tests/compiler/passes", "-m", "not slow"),
        ),
    ),
    Check(
        "memory",
        "Hugging Face llama, one layer and head, eager, f32, padding mask, host aten: peak growth at S=16384 is at "
        "most 2.5 times that at 8192, and under 256 MiB beyond weights, activations and K/V.",
        (call("growth", "benchmarks.accept.memory:linear_growth"),),
    ),
    Check(
        "bad-input",
        "Wrong dtype, shape or device, broken IR text, an unwritable or corrupt store, no compiler: one clear error or "
        "warning each, a non-zero exit, nothing half-written.",
        (
            suite("cli", "tests/compiler/cli"),
            suite("store", "tests/runtime/test_store.py", "tests/runtime/test_kernels.py"),
            suite("backend", "tests/compiler/test_backend.py"),
        ),
    ),
    MAKE_CHECK,
    MAKE_TEST,
)
