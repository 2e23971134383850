"""Stage 4: a derived key/value cache, from a traced model to a generator on paged attention."""

from __future__ import annotations

from attnc.codegen.paged_plan import STORES
from benchmarks.accept.checks import Check, Shard, call, suite
from benchmarks.accept.common import KNOWN_BUGS, MAKE_CHECK, MAKE_TEST
from benchmarks.paged_machine import GATED

DERIVE = "tests/compiler/derive"
PAGED = "tests/runtime/test_paged_kernel.py"
PAGED_MACHINE = "benchmarks.paged_machine"
PAGED_SHARDS = 16
PAGE_SIZES = (16, 32, 64, 128)
MIXES = [f"{group}-{dtype}" for group in (1, 4, 20) for dtype in ("f32", "bf16")]
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
        "and right; every rule is judged by perturbing single tokens. Models with a cache of their own likewise.",
        (
            suite("own-cache", f"{DERIVE}/past"),
            suite("rules", f"{DERIVE}/test_rules.py", f"{DERIVE}/test_site.py", f"{DERIVE}/test_axes.py"),
            *_parts("refused", "test_refusals.py", "test_every_refusal"),
            *_parts("twins", "test_refusals.py", "test_every_twin"),
        ),
    ),
    Check(
        "gemma",
        "Gemma 3 270M: transformers' greedy tokens, at least twice its tokens per second; the first token at least "
        "five times sooner where 400 of 408 are known.",
        (call("run", "benchmarks.serving:promised", retries=1),),
    ),
    Check(
        "bits",
        "A row's bits depend on neither the batch nor the chunking nor its neighbours; a request's tokens are the same "
        "alone and in any mix.",
        (
            *(suite(f"rows-{part}", PAGED, "-k", f"test_bits_of_every_kind and {part}") for part in MIXES),
            suite("others", PAGED, "-k", "bits and not every_kind"),
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
        "Paged kernels for CPUs: every page size, store and variant, by the policy.",
        (
            *(
                suite(f"numbers-{store}", *(f"{PAGED}::test_numbers_of_every_kind[{store}-{n}]" for n in PAGE_SIZES))
                for store in STORES
            ),
            suite("dimensions", PAGED, "-k", "numbers_of_head_dimensions or numbers_of_odd_pages"),
            suite("others", PAGED, "-k", "not numbers_of and not bits"),
        ),
    ),
    Check(
        "gpu-kernels",
        "Paged kernels for GPUs: in the interpreter every page size, store and variant, by the policy; compiled for "
        "sm_80, sm_90 and sm_100 without spills, with wide loads and tensor cores.",
        (
            suite("write", "tests/triton/test_kv_write.py"),
            suite("pages", "tests/triton/test_paged.py"),
            *(
                suite(f"product-{i:02}", "tests/triton/test_paged_matrix.py", "-k", f"shard-{i:02}")
                for i in range(PAGED_SHARDS)
            ),
            *(
                call(f"{target}-{i}", f"{PAGED_MACHINE}:part", target, str(i), str(PARTS))
                for target in GATED
                for i in range(PARTS)
            ),
            call("gates", f"{PAGED_MACHINE}:verdict", last=True),
        ),
    ),
    Check(
        "quantised",
        "Gemma on 2 000 tokens of real text: int8 changes perplexity by at most 0.5 %, int8/int4 by at most 3 % at 2.5 "
        "times the capacity of bf16; int4 has 3.5 times that capacity, and its change carries a code.",
        (call("run", "benchmarks.quantised:gemma"),),
    ),
    KNOWN_BUGS,
    MAKE_CHECK,
    MAKE_TEST,
)
