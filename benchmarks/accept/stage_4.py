"""Stage 4: a derived key/value cache, from a traced model to a generator on paged attention."""

from __future__ import annotations

from benchmarks.accept.checks import Check, Shard, suite
from benchmarks.accept.common import KNOWN_BUGS, MAKE_CHECK, MAKE_TEST

DERIVE = "tests/compiler/derive"
PARTS = 4
"""In how many parts decoders and refusals are run."""


def _parts(name: str, file: str, test: str) -> tuple[Shard, ...]:
    return tuple(suite(f"{name}-{i}", f"{DERIVE}/{file}", "-k", f"{test} and part{i}") for i in range(PARTS))


CHECKS = (
    Check(
        "decoders",
        "Unmodified decoders and encoder-decoders are derived: logits at every token within the policy and equal "
        "greedy tokens for 32 steps, a ragged batch of five, prefill in chunks of 7, pages of 16 poisoned with NaN.",
        _parts("run", "test_decoders.py", "test_every_decoder_is_derived"),
    ),
    Check(
        "refusals",
        "Models without an incremental form are refused with the op and its line, each beside a twin that is derived "
        "and right; every rule is judged by perturbing single tokens.",
        (
            suite("rules", f"{DERIVE}/test_rules.py", f"{DERIVE}/test_site.py", f"{DERIVE}/test_axes.py"),
            *_parts("refused", "test_refusals.py", "test_every_refusal"),
            *_parts("twins", "test_refusals.py", "test_every_twin"),
        ),
    ),
    Check("gemma", "Gemma 3 270M: transformers' greedy tokens, at least twice its tokens per second."),
    Check(
        "bits",
        "A row's bits depend on neither the batch nor the chunking nor its neighbours; a request's tokens are the same "
        "alone and in any mix.",
        (
            suite("rows", "tests/runtime/test_paged_kernel.py", "-k", "bits"),
            suite("tokens", "tests/compiler/test_generator.py"),
        ),
    ),
    Check(
        "cache",
        "10 000 random operations against a naive model leave no leak and no wrong page; 200 requests with cancels on "
        "too few pages are each right or cleanly refused; waste at page 16 is at most 4 %.",
        (
            suite("operations", "tests/runtime/kv"),
            suite("requests", "tests/runtime/test_engine.py", "tests/runtime/test_scheduler.py"),
        ),
    ),
    Check(
        "kernels",
        "Paged kernels for CPUs and, in the interpreter, for GPUs: every page size, store and variant, by the policy.",
    ),
    Check("quantised", "Perplexity of Gemma on 2 000 tokens with int8, int8/int4 and int4 pages."),
    KNOWN_BUGS,
    MAKE_CHECK,
    MAKE_TEST,
)
