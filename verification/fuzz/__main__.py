"""`python -m verification.fuzz [--inputs N] [NAME...]`: every target with so many inputs, and a table."""

from __future__ import annotations

import argparse
import importlib.util
import logging
import re
import subprocess
import sys
import time
import traceback
from pathlib import Path

from verification.fuzz.mutator import inputs
from verification.fuzz.target import LONGEST, Target, all_targets

HEADINGS = ("target", "inputs", "seconds", "crashes", "guided by", "corpus")
KEPT = Path("fuzz-crashes")


def main() -> int:
    """1 if anything has crashed."""
    parser = argparse.ArgumentParser(prog="python -m verification.fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", help="targets whose names contain one of these; all if none is given")
    parser.add_argument("--inputs", type=int, default=20_000, help="for each target; slow ones get a share of it")
    parser.add_argument("--whole", action="store_true", help="so many for slow ones too")
    parser.add_argument("--seconds", type=int, default=7200, help="for each target at the most, where atheris guides")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--blind", action="store_true", help="without atheris, also where it is installed")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)  # every bad input would be a line
    chosen = [each for each in all_targets() if not given.names or any(name in each.name for name in given.names)]
    guided = not given.blind and importlib.util.find_spec("atheris") is not None
    print("| " + " | ".join(HEADINGS) + " |\n" + "|---" * len(HEADINGS) + "|", flush=True)
    crashes = 0
    for target in chosen:
        count = max(1, int(given.inputs * (1.0 if given.whole else target.weight)))
        began = time.monotonic()
        if guided:
            count, found, corpus = _guided(target, count, given.seconds)
        else:
            found, corpus = _blind(target, count, given.seed)
        crashes += found
        guide = "atheris" if guided else f"nothing, seed {given.seed}"
        row = (target.name, f"{count:,}", f"{time.monotonic() - began:.0f}", str(found), guide, corpus)
        print("| " + " | ".join(row) + " |", flush=True)
    return 1 if crashes else 0


def _blind(target: Target, count: int, seed: int) -> tuple[int, str]:
    """Mutations of the seeds, in this process; a crash of each kind is kept."""
    kinds: set[str] = set()
    for data in inputs(target.seeds, target.words, count, seed):
        began = time.monotonic()
        try:
            target.check(data)
            if time.monotonic() - began > LONGEST:
                raise TimeoutError(f"took {time.monotonic() - began:.1f} s")
        except Exception as error:  # noqa: BLE001 - this is what we look for
            place = traceback.extract_tb(error.__traceback__)[-1]
            kind = f"{type(error).__name__} at {place.filename}:{place.lineno}"
            if kind not in kinds:
                kinds.add(kind)
                _keep(target, data, "".join(traceback.format_exception(error)[-6:]))
    return len(kinds), f"{len(target.seeds)} seeds"


def _guided(target: Target, count: int, seconds: int) -> tuple[int, int, str]:
    """Under libFuzzer, in a process of its own, which ends at the first crash."""
    command = [sys.executable, "-m", "verification.fuzz.guided", target.name, str(count), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    tail = done.stderr
    if done.returncode:
        kept = re.search(r"Test unit written to (\S+)", tail)
        data = Path(kept[1]).read_bytes() if kept else b""
        _keep(target, data, tail[-4000:])
    status = re.findall(r"#\d+\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)", tail)
    corpus = f"{status[-1][2]} inputs, {status[-1][0]} edges" if status else "?"
    carried_out = re.search(r"Done (\d+) runs", tail)
    return int(carried_out[1]) if carried_out else 0, int(done.returncode != 0), corpus


def _keep(target: Target, data: bytes, why: str) -> None:
    KEPT.mkdir(exist_ok=True)
    name = re.sub(r"\W+", "-", target.name)
    path = KEPT / f"{name}-{abs(hash(data)) % 16**8:08x}"
    path.write_bytes(data)
    print(f"{target.name}: {data[:200]!r} (in {path})\n{why}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
