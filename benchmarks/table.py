"""The comparison as a page."""

from __future__ import annotations

from benchmarks.comparison import LEAST, MANY, SIZE, WAYS, Comparison, Figure

HOW = f"""\
A Python publisher, Python subscribers in two processes, each of which receives and acks every message of {SIZE} bytes,
with a handler called for each. Measured from the first publish until the last subscriber has acked the last message.
Message by message means pipelined, 64 deep. zkms is used the same way throughout: `publish_many()`, which packs by
itself. Servers from the distribution's packages, on loopback, each started for its turn. Repeat with `make peers`."""


def page(comparison: Comparison) -> str:
    """Markdown."""
    c = comparison
    lines = ["# zkms and its peers", "", HOW, ""]
    lines.append(f"zkms {c.zkms}, Python {c.python}, {c.system}, {c.cores} cores, median of {c.rounds} round(s).")
    if c.others:
        lines.append(f"**{c.others}.**")
    counts = sorted({figure.subscribers for figure in c.figures})
    for pack, way in WAYS.items():
        head = ["peer", *(f"{count} subscriber{'s' * (count > 1)}: messages/s | zkms is" for count in counts)]
        lines += ["", f"## {way.capitalize()}", "", f"| {' | '.join(head)} | durability |"]
        lines.append("|---" * (2 * len(counts) + 2) + "|")
        for peer in dict.fromkeys(f.peer for f in c.figures if f.pack == pack or f.peer == "zkms"):
            lines.append(_line(c, peer, counts, 1 if peer == "zkms" else pack))
    lines += [
        "",
        f"## Required, with {MANY} subscribers",
        "",
        "| against | at least | measured | met |",
        "|---|---|---|---|",
    ]
    lines += [_requirement(c, figure) for figure in c.figures if figure.peer != "zkms" and figure.subscribers == MANY]
    lines += ["", *(f"Not measured: {peer}: {reason}" for peer, reason in c.absent.items())]
    return "\n".join(lines).rstrip() + "\n"


def _line(c: Comparison, peer: str, counts: list[int], pack: int) -> str:
    cells = [peer]
    durability = ""
    for count in counts:
        figure = c.find(peer, count, pack)
        if figure is None:
            cells += ["-", "-"]
            continue
        durability = figure.durability
        cells += [f"{figure.messages_per_s:,.0f}", "-" if peer == "zkms" else _times(c.ratio(figure))]
    return f"| {' | '.join([*cells, durability])} |"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.2g}x"


def _requirement(c: Comparison, figure: Figure) -> str:
    least, ratio = LEAST[figure.pack], c.ratio(figure)
    met = "yes" if ratio is not None and ratio >= least else "no"
    return f"| {figure.peer}, {WAYS[figure.pack]} | {least:g}x | {_times(ratio)} | {met} |"
