"""Do what is asked on standard input, a line of JSON each: [method, args, kwargs]; answer with a line of JSON."""

from __future__ import annotations

import json
import sys
from typing import Any


def serve(target: Any) -> None:
    """Call methods of `target` until the input ends."""
    for line in sys.stdin:
        name, args, kwargs = json.loads(line)
        try:
            answer = {"result": getattr(target, name)(*args, **kwargs)}
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
