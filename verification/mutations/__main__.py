"""`python -m verification.mutations [NAME...]`: switch mechanisms off, one at a time, and see a test fail for each."""

from __future__ import annotations

import sys
import time

from verification.mutations.mechanisms import MECHANISMS, Mechanism
from verification.mutations.trial import CannotApply, Copy, mutated

MUST = "failed as it must"
HEADINGS = ("mechanism", "switched off in", "test", "without it", "what it said", "seconds")


def main(wanted: list[str]) -> int:
    """Try those whose names contain one of the words, all if there is none; 1 if one was not missed by its test."""
    chosen = [each for each in MECHANISMS if not wanted or any(word.lower() in each.name.lower() for word in wanted)]
    if not chosen:
        print(f"No mechanism is called like {' or '.join(wanted)}.", file=sys.stderr)
        return 2
    try:
        for mechanism in chosen:
            mutated(mechanism)
    except CannotApply as error:
        print(error, file=sys.stderr)
        return 2
    with Copy() as copy:
        tests = list(dict.fromkeys(mechanism.test for mechanism in chosen))
        print(f"With all mechanisms: {len(tests)} tests ...", file=sys.stderr, flush=True)
        whole = copy.run(tests)
        if not whole.passed:
            print(f"They fail with nothing switched off: {whole.reason}", file=sys.stderr)
            return 2
        print("| " + " | ".join(HEADINGS) + " |\n" + "|---" * len(HEADINGS) + "|", flush=True)
        missed = [mechanism for mechanism in chosen if not _try(copy, mechanism)]
    print(f"\n{len(chosen) - len(missed)} of {len(chosen)} mechanisms are missed by a test when they are switched off.")
    return 1 if missed else 0


def _try(copy: Copy, mechanism: Mechanism) -> bool:
    began = time.monotonic()
    with copy.without(mechanism):
        verdict = copy.run([mechanism.test])
    outcome = "STILL PASSES" if verdict.passed else MUST if verdict.failed else "COULD NOT BE RUN"
    said = verdict.reason.replace("|", "\\|").replace("`", "'")[:90]
    row = (
        mechanism.name,
        f"`{mechanism.file}`",
        f"`{mechanism.test.rpartition('::')[2]}`",
        outcome,
        f"`{said}`" if said else "",
        f"{time.monotonic() - began:.0f}",
    )
    print("| " + " | ".join(row) + " |", flush=True)
    return verdict.failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
