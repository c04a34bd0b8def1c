"""Draws docs/rooms.svg from the sources: the rooms by layer, how large they are, and which layers each layer imports.

With --check it only compares, and ends with 1 if the picture is out of date; sizes may differ.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from html import escape

from layers import LAYERS, PROJECT, imports, layer, leads_up, modules, room

Way = tuple[int | None, int | None]

PICTURE = PROJECT / "docs" / "rooms.svg"
ROW, BOX = 46, 36
LEFT, WIDTH = 44, 600
"""Where boxes begin, and how much room there is for them."""
COLUMN = 19
GRID = LEFT + WIDTH + 40
"""Where the table of imports begins, and how wide a column is."""
TOP = 74
NOUNS = {"zkms": "zkms: public names"}
KINDS = ("outer", "outer", "outer", "outer", "facade", "facade", "facade", "facade", "facade", "core", "core", "core")
"""How the layers are coloured, from the highest down; those below are the ground."""

STYLE = """
.paper { fill: #ffffff } text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
.name { font-size: 13px; font-weight: 600; fill: #1f2328 } .size, .number, .note { font-size: 10.5px; fill: #59636e }
.title { font-size: 12px; font-weight: 600; fill: #59636e } .line { stroke: #d1d9e0; stroke-width: 1 }
.outer { fill: #fff1d6; stroke: #c98a1b } .facade { fill: #dcf5e4; stroke: #3a9a5c }
.core { fill: #dbeafe; stroke: #3b78d8 } .ground { fill: #eceef1; stroke: #7d8793 } .own { fill: #eaeef2 }
.dot { fill: #3b78d8 } .wrong { fill: #d1242f }
@media (prefers-color-scheme: dark) {
.paper { fill: #0d1117 } .name { fill: #f0f6fc } .line { stroke: #30363d }
.size, .number, .note, .title { fill: #9198a1 }
.outer { fill: #3b2a0a; stroke: #d29922 } .facade { fill: #10301c; stroke: #3fb950 }
.core { fill: #12284c; stroke: #4493f8 } .ground { fill: #21262d; stroke: #6e7681 } .own { fill: #1c2128 }
.dot { fill: #4493f8 } .wrong { fill: #f85149 }
}
"""


def draw() -> str:
    """The picture as SVG."""
    found = modules()
    size = Counter[str]()
    for module, path in found.items():
        size[room(module)] += path.read_text().count("\n")
    inner = [each for each in imports(found) if each.target in found and room(each.source) != room(each.target)]
    between = Counter((layer(each.source), layer(each.target)) for each in inner)
    wrong = {(layer(each.source), layer(each.target)) for each in inner if leads_up(each)}
    height = TOP + ROW * len(LAYERS) + 34
    width = GRID + COLUMN * len(LAYERS) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        "<title>The rooms of zkms by layer, and what each layer imports</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{width}" height="{height}"/>',
        _text(LEFT, 26, "Rooms, highest layer first: each imports only from the layers below it", "title"),
        _text(GRID, 26, "Dots in a row: the layers that it imports", "title"),
    ]
    for depth, rooms in enumerate(LAYERS):
        y = TOP + depth * ROW
        kind = KINDS[depth] if depth < len(KINDS) else "ground"
        parts.append(f'<line class="line" x1="16" x2="{width - 16}" y1="{y - 5}" y2="{y - 5}"/>')
        parts.append(_text(30, y + 22, str(depth + 1), "number", "end"))
        parts += _boxes([name for name in rooms if size[name]], y, kind, size)
        parts += _imports(depth, y, between, wrong)
        parts.append(_text(GRID + depth * COLUMN + COLUMN / 2, TOP - 14, str(depth + 1), "number", "middle"))
    note = "a larger dot: more imports; a red one: upwards"
    parts.append(_text(GRID, TOP + ROW * len(LAYERS) + 16, note, "note"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _boxes(rooms: list[str], y: float, kind: str, size: Counter[str]) -> list[str]:
    labels = [NOUNS.get(name, name.removeprefix("zkms.")) for name in rooms]
    widths = [max(84.0, 26 + 7.6 * len(label)) for label in labels]
    x = LEFT + (WIDTH - sum(widths) - 10 * (len(rooms) - 1)) / 2
    parts = []
    for name, label, wide in zip(rooms, labels, widths, strict=True):
        parts.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{wide:g}" height="{BOX}" rx="5"/>')
        parts.append(_text(x + wide / 2, y + 16, label, "name", "middle"))
        parts.append(_text(x + wide / 2, y + 29, _about(size[name]), "size", "middle"))
        x += wide + 10
    return parts


def _imports(depth: int, y: float, between: Counter[Way], wrong: set[Way]) -> list[str]:
    parts = [f'<rect class="own" x="{GRID + depth * COLUMN}" y="{y - 5}" width="{COLUMN}" height="{ROW}"/>']
    for other in range(len(LAYERS)):
        if count := between[depth, other]:
            kind = "wrong" if (depth, other) in wrong else "dot"
            radius = 2.5 if count < 4 else 4.5 if count < 20 else 7
            x = GRID + other * COLUMN + COLUMN / 2
            parts.append(f'<circle class="{kind}" cx="{x:g}" cy="{y + BOX / 2:g}" r="{radius:g}"/>')
    return parts


def _about(lines: int) -> str:
    """To two digits: 42 lines, 670 lines, 2,400 lines."""
    return f"{round(lines, 2 - len(str(lines))):,} lines"


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{kind}" x="{x:g}" y="{y:g}"{where}>{escape(text)}</text>'


def _without_sizes(picture: str) -> str:
    """What has to be the same: rooms, layers, and who imports whom, however often."""
    return re.sub(r' r="[^"]*"', "", re.sub(r'<text class="size".*', "", picture))


def main(arguments: list[str]) -> int:
    """Draw or compare."""
    picture = draw()
    if "--check" not in arguments:
        PICTURE.write_text(picture)
        return 0
    if PICTURE.exists() and _without_sizes(PICTURE.read_text()) == _without_sizes(picture):
        return 0
    print("docs/rooms.svg is out of date: make architecture")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
