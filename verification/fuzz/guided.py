"""`python -m verification.fuzz.guided TARGET INPUTS SECONDS`: one target under atheris, guided by coverage.

A process of its own for each target, since libFuzzer ends the process when it is done.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from pathlib import Path

SEEN = ("zkms", "zkms_cleaner", "click", "http", "wsgiref", "prometheus_client")
"""Packages whose lines count: ours, and those that take a command line or a request apart before it comes to ours."""


def main(name: str, count: str, seconds: str) -> None:
    """Does not return."""
    import atheris

    logging.disable(logging.CRITICAL)  # every bad input would be a line
    os.environ["LANGUAGE"] = "C"  # or translations are looked for in the file system with every refusal
    with atheris.instrument_imports(include=[*SEEN], enable_loader_override=False):
        from verification.fuzz.target import LONGEST, all_targets

        target = next(each for each in all_targets() if each.name == name)
    corpus = Path(tempfile.mkdtemp(prefix="zkms-fuzz-"))
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    words = corpus.parent / f"{corpus.name}.words"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))
    arguments = [
        *(sys.argv[0], f"-runs={count}", "-seed=1", "-max_len=4096", "-print_final_stats=1", "-verbosity=1"),
        *(
            f"-timeout={LONGEST * 4:.0f}",
            "-rss_limit_mb=2048",
            f"-max_total_time={seconds}",
            f"-dict={words}",
            f"-artifact_prefix={corpus}/",
        ),
        str(corpus),
    ]
    atheris.Setup(arguments, target.check)
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    """As libFuzzer's dictionaries have it."""
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    main(*sys.argv[1:])
