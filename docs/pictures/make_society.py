"""Make the pictures of `docs/guides/society-story.md`: `brief.svg`, `referrals.svg` and `contacts.svg`.

It runs the examples of the society and draws what they print. Run it when an example prints something else:
`PYTHONPATH=.dev:tests .venv/bin/python -P docs/pictures/make_society.py`.
"""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(__file__).parent
ROOT: Final = FOLDER.parents[1]
CHARACTER, LINE, EDGE = 7.3, 17, 76  # pixels: of the font, and from the border to the first person
COLUMN: Final = {"brief": 330, "referrals": 176}
NODE: Final = (190, 46)


def printed(example: str) -> str:
    """Run an example and give what it prints."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("WORLDAGENT_")}
    argv = [sys.executable, "-P", str(ROOT / "examples" / example)]
    done = subprocess.run(
        argv, env=env | {"PYTHONPATH": str(ROOT / ".dev")}, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def drawn(briefs: str, referrals: str) -> dict[str, str]:
    """Give the pictures of what the two examples print, by the names of their files."""
    runs = [(run.splitlines()[0], briefs_of(run)) for run in briefs.split("--- ")[1:]]
    found = [*map(_arrow, referrals.partition("flowchart")[0].splitlines())]
    crew = ["developer", "web-lead", "root", "legal-lead", "contracts"]
    return {
        "brief.svg": sequences("What reaches the developer", runs, ["user", "root", "developer-dana"], COLUMN["brief"]),
        "referrals.svg": sequences("The way to a specialist", [("", found)], crew, COLUMN["referrals"]),
        "contacts.svg": graph("Who knows whom", referrals.partition("flowchart LR\n")[2]),
    }


# --- messages ---------------------------------------------------------------------------------------------------------


class Arrow(NamedTuple):
    """A message, and what is noted below it.

    Attributes:
        sender: The id of its sender.
        receiver: The id of its receiver.
        lines: Its text.
        note: A note, shown in the colour of a warning.
        thin: Whether the arrow is dashed.
    """

    sender: str
    receiver: str
    lines: list[str]
    note: str = ""
    thin: bool = False


def briefs_of(run: str) -> list[Arrow]:
    """The messages that one run of `society_brief.py` prints."""
    found = re.findall(r"^(\S+) reads:\n((?:    .*\n)+)(?:(lost on the way: .*)\n)?", run, re.MULTILINE)
    return [_read(reader, textwrap.dedent(text).splitlines(), lost) for reader, text, lost in found]


def _read(reader: str, lines: list[str], lost: str) -> Arrow:
    head = re.fullmatch(r"\[Message from .*\((.+)\)\]", lines[0])
    lines = [each for each in lines if each != lines[0] or head is None]
    shown = [each for each in lines if not each.startswith("To reply, ")]
    return Arrow("user" if head is None else head[1], reader, shown, lost)


def _arrow(line: str) -> Arrow:
    [(sender, receiver, text, thin)] = re.findall(r"^(\S+) -> (\S+): (.*?)(  \[.*\])?$", line)
    return Arrow(sender, receiver, [text], thin=bool(thin))


def sequences(title: str, runs: Sequence[tuple[str, Sequence[Arrow]]], people: Sequence[str], column: int) -> str:
    """Draw messages from top to bottom, each run below the one before."""
    places = {each: EDGE + column * number for number, each in enumerate(people)}
    parts: list[str] = []
    top = 0
    for name, arrows in runs:
        if name:
            top += 2 * LINE
            parts.append(_text(EDGE - 60, top, name, "name"))
        below = top + 3 * LINE
        body: list[str] = []
        for arrow in arrows:
            more, below = _message(arrow, places, below)
            body += more
        for each, place in places.items():
            parts.append(f'<path class="life" d="M{place} {top + 2 * LINE + 4}V{below}"/>')
            parts.append(_text(place, top + 2 * LINE, each, "who"))
        parts += body
        top = below
    return _page(title, max(places.values()) + EDGE, top + LINE, parts)


def _message(arrow: Arrow, places: Mapping[str, int], top: int) -> tuple[list[str], int]:
    """One arrow with its text above and its note below; also gives where it ends."""
    begin, end = places[arrow.sender], places[arrow.receiver]
    left, room = min(begin, end) + 8, int((abs(end - begin) - 16) / CHARACTER)
    lines = [row for line in arrow.lines for row in _wrapped(line, room)]
    rows = [_text(left, top + LINE * number, line) for number, line in enumerate(lines, 1)]
    level = top + LINE * len(lines) + 8
    tip = end - 8 if end > begin else end + 8
    way = f'<path class="way{" thin" if arrow.thin else ""}" d="M{begin} {level}H{tip}"/>'
    head = f'<path class="head" d="M{end} {level}L{tip} {level - 4}V{level + 4}Z"/>'
    kind = "good" if arrow.note.endswith("nothing") else "bad"
    note = [_text(left, level + LINE * number, line, kind) for number, line in enumerate(_wrapped(arrow.note, room), 1)]
    return [*rows, way, head, *note], level + LINE * len(note) + 8


def _wrapped(text: str, room: int) -> list[str]:
    return textwrap.wrap(text, room, subsequent_indent="  ")


# --- who knows whom ---------------------------------------------------------------------------------------------------


def graph(title: str, mermaid: str) -> str:
    """Draw a flowchart of `worldagent society graph`: those known from birth as a tree, and the others as arrows."""
    names = dict(re.findall(r'^  (\w+)\["(.*)"\]$', mermaid, re.MULTILINE))
    edges = re.findall(r'^  (\w+) -->(?:\|"(.*)"\|)? (\w+)$', mermaid, re.MULTILINE)
    places = _tree(next(iter(names)), [(one, other) for one, by, other in edges if not by])
    met = [(one, by, other) for one, by, other in edges if by]
    born = {(min(one, other), max(one, other)) for one, by, other in edges if not by}
    ends = [(*places[one], *places[other]) for one, other in sorted(born)]
    parts = [f'<path class="life" d="M{x1:g} {y1:g}L{x2:g} {y2:g}"/>' for x1, y1, x2, y2 in ends]
    curves = [_curve(places[one], places[other], by) for one, by, other in met]
    parts += [way for way, _ in curves] + [label for _, label in curves]
    for node, (x, y) in places.items():
        width, height = NODE
        name, _, id_ = names[node].rpartition(" ")
        box = f'x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width}" height="{height}" rx="6"'
        parts.append(f'<rect class="node" {box}/>')
        parts += [_text(x, y - 3, name, "who"), _text(x, y + LINE - 3, id_, "id")]
    across, down = zip(*places.values(), strict=True)
    return _page(title, max(across) + NODE[0] / 2 + 24, max(down) + NODE[1] + 24, parts)


def _tree(root: str, edges: Iterable[tuple[str, str]]) -> dict[str, tuple[float, float]]:
    """Where each node of a tree is: a parent is above the middle of its children."""
    near = defaultdict(list)
    for one, other in edges:
        near[one].append(other)
    places: dict[str, tuple[float, float]] = {}

    def place(node: str, above: str, level: int, left: float) -> float:
        below = [each for each in near[node] if each != above]
        right = left
        for child in below:
            right = place(child, node, level + 1, right)
        right = max(right, left + 440)
        places[node] = ((left + right - 440) / 2 + NODE[0] / 2 + 24, 48 + 104 * level)
        return right

    place(root, "", 0, 0)
    return places


def _curve(begin: tuple[float, float], end: tuple[float, float], by: str) -> tuple[str, str]:
    """An arrow between two nodes, and who introduced them. It bends to its right, so that two show side by side."""
    across, down = end[0] - begin[0], end[1] - begin[1]
    length = (across**2 + down**2) ** 0.5
    middle = ((begin[0] + end[0]) / 2 - down / length * 56, (begin[1] + end[1]) / 2 + across / length * 56)
    (x1, y1), (x2, y2) = _border(begin, middle), _border(end, middle)
    x, y = (4 * x1 + 4 * middle[0] + x2) / 9, (4 * y1 + 4 * middle[1] + y2) / 9  # after a third of the way
    points = f"M{x1:.0f} {y1:.0f}Q{middle[0]:.0f} {middle[1]:.0f} {x2:.0f} {y2:.0f}"
    path = f'<path class="way" marker-end="url(#tip)" d="{points}"/>'
    return path, _text(round(x), round(y) + 4, by if " " in by else f"by {by}", "by")


def _border(node: tuple[float, float], towards: tuple[float, float]) -> tuple[float, float]:
    """Where the line from the middle of a node leaves it."""
    across, down = towards[0] - node[0], towards[1] - node[1]
    share = min(size / 2 / abs(way) for size, way in zip(NODE, (across, down), strict=True) if way)
    return node[0] + across * share, node[1] + down * share


# --- the page ---------------------------------------------------------------------------------------------------------


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:g}" y="{y:g}" xml:space="preserve">{html.escape(text)}</text>'


def _page(title: str, width: float, height: float, parts: Iterable[str]) -> str:
    size = {"width": f"{width:g}", "height": f"{height:g}"}
    return _FORMAT.format(title=title, light=LIGHT, dark=DARK, parts="\n".join(parts), **size)


# Written out for both, because not every program that draws SVG knows CSS variables.
_COLOURS = """\
.page, .node {{ fill: {page}; }}
text {{ fill: {text}; stroke: {page}; }} .id {{ fill: {dim}; }} .node {{ stroke: {dim}; }}
.by, .head {{ fill: {way}; }} .way {{ stroke: {way}; }} .life {{ stroke: {line}; }}
.bad {{ fill: {bad}; }} .good {{ fill: {good}; }}
"""
LIGHT: Final = _COLOURS.format(
    page="#fff", text="#1f2328", dim="#6e7781", line="#d0d7de", way="#3f51b5", bad="#b3261e", good="#1a7f37"
)
DARK: Final = _COLOURS.format(
    page="#1e2129", text="#e6edf3", dim="#9198a1", line="#4a5060", way="#9fa8ff", bad="#ff8a80", good="#7ee787"
)
_FORMAT: Final = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>{title}</title>
<style>
text {{
font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
paint-order: stroke; stroke-width: 4px;
}}
.name, .who {{ font: bold 13px system-ui, "DejaVu Sans", sans-serif; }}
.who, .id, .by {{ text-anchor: middle; }}
.bad, .good {{ font-weight: bold; }}
.by {{ stroke-width: 11px; }}
.life, .way {{ fill: none; stroke-width: 1.5px; }}
.thin {{ stroke-dasharray: 5 4; }}
{light}@media (prefers-color-scheme: dark) {{
{dark}}}
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">
<path class="head" d="M0 0L8 4L0 8Z"/>
</marker></defs>
<rect class="page" width="{width}" height="{height}" rx="8"/>
{parts}
</svg>
"""


if __name__ == "__main__":
    for name, picture in drawn(printed("society_brief.py"), printed("society_referrals.py")).items():
        (FOLDER / name).write_text(picture, encoding="utf-8")
