"""Checks that every stage repeats."""

from __future__ import annotations

from benchmarks.accept.checks import Check, call

KNOWN_BUGS = Check(
    "known-bugs",
    "The reproductions of other compilers' attention bugs pass; fused or refused with a code, per test, against a "
    "list that only grows.",
    (call("run", "benchmarks.accept.bugs:known_bugs"),),
)
MAKE_CHECK = Check("check", "`make check` is clean.", (call("run", "benchmarks.accept.measures:make_check"),))
MAKE_TEST = Check(
    "test",
    "`make test` passes in at most 15 minutes, either half of it in half of that.",
    tuple(call(part, "benchmarks.accept.measures:make_test", part, retries=1) for part in ("compiler", "rest")),
)
