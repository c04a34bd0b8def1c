"""Asks osv.dev whether vulnerabilities are known of the versions in constraints.txt: one request, no dependencies.

Ends with 1 if there are any. Where osv.dev cannot be asked it says so, and ends with 0: nothing is known then, which is
no reason to stop those who work offline.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

OSV = "https://api.osv.dev/v1/querybatch"
TIMEOUT = 10.0
_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;#]+)")


def pins(text: str) -> list[tuple[str, str]]:
    """Names and versions."""
    return [match.groups() for line in text.splitlines() if (match := _PIN.match(line.strip()))]  # type: ignore[misc]


def ask(url: str, wanted: list[tuple[str, str]]) -> list[list[str]]:
    """For each version the ids of what is known against it; OSError or ValueError if there is no proper answer."""
    queries = [{"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in wanted]
    request = urllib.request.Request(  # noqa: S310 - the address is ours
        url, json.dumps({"queries": queries}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310
        results: list[dict[str, Any]] = json.load(answer)["results"]
    if len(results) != len(wanted):
        raise ValueError(f"{len(results)} answers to {len(wanted)} questions")
    return [[str(each["id"]) for each in result.get("vulns", ())] for result in results]


def main() -> int:
    """Ask, and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("constraints", type=Path)
    parser.add_argument("--osv", default=OSV, help="whom to ask")
    options = parser.parse_args()
    wanted = pins(options.constraints.read_text())
    try:
        known = ask(options.osv, wanted)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "reason", None) or error
        print(f"audit: {options.osv} could not be asked ({reason}): nothing is known of these {len(wanted)} versions")
        return 0
    found = [(pin, ids) for pin, ids in zip(wanted, known, strict=True) if ids]
    for (name, version), ids in found:
        print(f"audit: {name} {version}: {', '.join(ids)}")
    print(f"audit: {len(found)} of {len(wanted)} versions have known vulnerabilities")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
