"""Make the picture and the trace of `docs/guides/autonomous-week.md`, and print what its commands print.

It goes through a week of the example `autonomous_workspace` on the command line, and draws what was decided. Run it
when a command prints something else: `PYTHONPATH=.dev:tests .venv/bin/python -P docs/pictures/make_week.py`.
"""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

FOLDER: Final = Path(__file__).resolve().parent
ROOT: Final = FOLDER.parents[1]
TRACE: Final = FOLDER.parent / "guides" / "autonomous-week-trace.html"
DAYS: Final = {
    "Monday": "2026-03-02",
    "Tuesday": "2026-03-03",
    "Wednesday": "2026-03-04",
    "Thursday": "2026-03-05",
    "Friday": "2026-03-06",
}
OWNER: Final = "charles"
_RUN: Final = "worldagent workspace run demo.yaml --app team:agent"
_OF: Final = "--workspace vibe-team"

# What a reader types on each day. `@EVENT` stands for the id of the call that waits for this event, or of its turn.
PLAN: Final[Mapping[str, Sequence[str]]] = {
    "Monday": (
        "worldagent workspace show demo.yaml",
        f"grep 2026-03-02 week.jsonl | {_RUN} --events -",
        f"worldagent approvals list {_OF}",
        "worldagent approvals approve @lead-globex --app team:agent",
        _RUN,
    ),
    "Tuesday": (
        f"grep 2026-03-03 week.jsonl | {_RUN} --events -",
        "worldagent approvals approve @discount-acme --app team:agent",
        "worldagent approvals approve @lead-initech --app team:agent",
        _RUN,
        f"worldagent workspace feedback event.lead-acme bad {_OF}",
        f"worldagent workspace outcomes cro {_OF}",
    ),
    "Wednesday": (
        f"worldagent workspace emit lead.created --id lead-wayne --to bdr-emea --domain amer {_OF}"
        """ --payload '{"company": "Wayne", "seats": 80}'""",
        f"grep 2026-03-04 week.jsonl | {_RUN} --events -",
        "worldagent approvals approve @lead-umbrella --app team:agent",
        "worldagent approvals approve @lead-wayne --app team:agent",
        _RUN,
    ),
    "Thursday": (
        f"worldagent workspace emit directive.spawn --id apac --domain revenue --source charles --verified {_OF}"
        """ --payload '{"template_id": "bdr", "params": {"territory": "APAC"}}'""",
        f"grep 2026-03-05 week.jsonl | {_RUN} --events -",
        f"worldagent society members {_OF}",
        "worldagent approvals approve @lead-stark --app team:agent",
        _RUN,
    ),
    "Friday": (
        f"worldagent workspace emit lead.created --id lead-nakatomi --to bdr-apac --domain revenue {_OF}"
        """ --payload '{"company": "Nakatomi", "seats": 30}'""",
        f"worldagent workspace emit press.mention --id press-globex --to cro --domain marketing {_OF}"
        """ --payload '{"title": "Globex moves"}'""",
        f"grep 2026-03-06 week.jsonl | {_RUN} --events -",
        f"worldagent workspace outcomes bdr-amer {_OF}",
        f"worldagent trace show @@lead-globex {_OF}",
        f"worldagent trace show @@lead-globex --html trace.html {_OF}",
    ),
}


class Week(NamedTuple):
    """What a week came to.

    Attributes:
        text: The commands and what they printed, with ids and times left out.
        events: The events with their decisions, as `workspace events --json` gives them.
        members: The members, as `society members --json` gives them.
        trace: The page that `trace show --html` writes.
    """

    text: str
    events: Sequence[Mapping[str, Any]]
    members: Sequence[Mapping[str, Any]]
    trace: str


# --- the week ---------------------------------------------------------------------------------------------------------


def lived(folder: Path, run: Callable[[Sequence[str], Path, str], str] | None = None) -> Week:
    """Go through the week in a copy of the example.

    Args:
        folder: An empty folder for it.
        run: Runs a command with its words, its folder and its standard input, and returns what it prints.
    """
    run = run or _run
    place = folder / "team"
    shutil.copytree(ROOT / "examples" / "autonomous_workspace", place, ignore=shutil.ignore_patterns(".*"))
    typed = [each for day in PLAN.values() for each in day]
    printed = [f"$ {masked(each)}\n{masked(_output(each, place, run))}" for each in typed]
    events = json.loads(_output(f"worldagent workspace events {_OF} --json", place, run))["events"]
    members = json.loads(_output(f"worldagent society members {_OF} --json", place, run))["members"]
    return Week("".join(printed), events, members, (place / "trace.html").read_text(encoding="utf-8"))


def masked(text: str) -> str:
    """A text without what differs between two runs: ids and times."""
    text = re.sub(r"(@@?)[a-z-]+", lambda found: "TURN" if found[1] == "@@" else "ID", text)
    text = re.sub(r"turn_[0-9a-f]{32}-[\w-]+", "ID", text)
    text = re.sub(r"turn_[0-9a-f]{32}", "TURN", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?", "TIME", text)
    text = re.sub(r"(left|width):[\d.]+%", r"\1:TIME", text)  # of the bars of a page
    return re.sub(r"[\d,.]+ [mu]?s\b", "TIME", text)


def _output(command: str, place: Path, run: Callable[[Sequence[str], Path, str], str]) -> str:
    """What a command prints in the folder of the example."""
    given, _, rest = command.rpartition(" | ")
    lines = ""
    if given:
        found = (place / "week.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        lines = "".join(each for each in found if given.split()[1] in each)
    words = [_named(each, place, run) if each.startswith("@") else each for each in shlex.split(rest)[1:]]
    return run(words, place, lines)


def _named(word: str, place: Path, run: Callable[[Sequence[str], Path, str], str]) -> str:
    """The id that `@EVENT` or `@@EVENT` in a command stands for."""
    kind, rows, id_ = ("trace", "traces", "turn") if word.startswith("@@") else ("approvals", "approvals", "id")
    listed = json.loads(_output(f"worldagent {kind} list {_OF} --json", place, run))[rows]
    return next(str(each[id_]) for each in listed if each["thread"] == f"event {word.lstrip('@')}")


def _run(words: Sequence[str], place: Path, lines: str) -> str:
    """Run a command in a process of its own."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("WORLDAGENT_", "TEAM_"))}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "worldagent.hosts.cli", *words],
        cwd=place,
        env=env | {"PYTHONPATH": str(ROOT / ".dev"), "WORLDAGENT_HOME": ".home", "COLUMNS": "200"},
        input=lines,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    if done.returncode not in (0, 3):  # 3: something waits for a person
        raise RuntimeError(f"{words!r} failed: {done.stderr}")
    return done.stdout


# --- the picture ------------------------------------------------------------------------------------------------------

COLUMN, LABEL, TOP, LINE, GAP, WIDE = 214, 96, 44, 15, 10, 28  # pixels; the last one is characters


class Card(NamedTuple):
    """What one lane shows of one event, or what the owner did.

    Attributes:
        kind: The decision; `owner` for what the owner did.
        lines: Its lines, the first of which names the event.
    """

    kind: str
    lines: Sequence[str]


def drawn(week: Week) -> str:
    """Draw a week: a lane for each member and the owner, a column for each day."""
    cells = _cells(week)
    lanes = [*(each["id"] for each in week.members), OWNER]
    parts, top = [], TOP
    for number, day in enumerate(DAYS):
        parts.append(_text(LABEL + number * COLUMN, 28, day, "name"))
    width = LABEL + COLUMN * len(DAYS)
    for lane in lanes:
        parts.append(f'<path class="line" d="M12 {top}H{width - 12}"/>')
        parts.append(_text(12, top + GAP + LINE, lane, "name"))
        below = top + GAP + LINE
        for number, day in enumerate(DAYS):
            level = top + GAP
            for card in cells[lane, day]:
                body, level = _card(card, LABEL + number * COLUMN, level)
                parts += body
            below = max(below, level)
        top = below
    return _FORMAT.format(width=width, height=top + GAP, light=LIGHT, dark=DARK, parts="\n".join(parts))


def _cells(week: Week) -> Mapping[tuple[str, str], list[Card]]:
    """What each lane shows of each day."""
    cells: dict[tuple[str, str], list[Card]] = defaultdict(list)
    days, approved = _days(week.events), set()
    for day, each in ((day, each) for day, typed in PLAN.items() for each in typed):
        if " approve @" in each:
            event = each.partition("@")[2].split()[0]
            approved.add(event)
            cells[OWNER, day].append(Card("owner", (event, "approves the call")))
        elif " feedback " in each:
            episode, verdict = each.split()[3:5]
            cells[OWNER, day].append(Card("owner", (episode.removeprefix("event."), f"rates it {verdict}")))
    for posted in week.events:
        event, day = posted["event"], days[posted["event"]["id"]]
        for passed, target in pairwise((*posted["trail"], posted["member"])):
            lines = (event["id"], f"forward {target}", f"{event['domain']} is the domain of {target}")
            cells[passed, day].append(Card("forward", lines))
        cells[posted["member"] or OWNER, day].append(_decided(posted, approved=event["id"] in approved))
        if event["type"] == "directive.spawn":
            [made] = [each for each in week.members if each["parent"] == posted["member"]]
            cells[made["id"], day].append(Card("owner", (made["id"], f"made by {made['parent']}")))
    return cells


def _decided(posted: Mapping[str, Any], *, approved: bool) -> Card:
    """The card of the last decision about an event."""
    decision = posted["decision"]
    what = decision.get("operator_id", decision.get("target_role_id", ""))
    result = f"= {'approved, ' if approved else ''}{posted['result']}"
    does = f"{decision['action']} {what}".strip()
    return Card(decision["action"], (posted["event"]["id"], does, decision["reason"].replace("'", ""), result))


def _days(events: Sequence[Mapping[str, Any]]) -> Mapping[str, str]:
    """The day of each event: that of its time in the file, or that of the command that posts it."""
    typed = {each.partition("--id ")[2].split()[0]: day for day in PLAN for each in PLAN[day] if "--id " in each}
    of_file = {date: day for day, date in DAYS.items()}
    ids = [(posted["event"]["id"], posted["event"]["timestamp"][:10]) for posted in events]
    return {id_: typed[id_] if id_ in typed else of_file[date] for id_, date in ids}


def _card(card: Card, left: int, top: int) -> tuple[list[str], int]:
    """One card, and where the next one begins."""
    name, does, *more = card.lines
    rows = [(name, "name"), (does, card.kind)]
    rows += [
        (row, "result" if each.startswith("= ") else "why")
        for each in more
        for row in textwrap.wrap(each, WIDE, break_on_hyphens=False)
    ]
    height = LINE * len(rows) + 8
    box = f'x="{left}" y="{top}" width="{COLUMN - 14}" height="{height}" rx="4"'
    parts = [f'<rect class="card" {box}/>', f'<path class="bar {card.kind}" d="M{left} {top + 2}V{top + height - 2}"/>']
    parts += [_text(left + 9, top + LINE * number, text, kind) for number, (text, kind) in enumerate(rows, 1)]
    return parts, top + height + GAP


def _text(x: int, y: int, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{html.escape(text)}</text>'


# Written out for both, because not every program that draws SVG knows CSS variables.
_COLOURS: Final = """\
.page {{ fill: {page}; }} .card {{ fill: {card}; }} .line {{ stroke: {line}; }}
text {{ fill: {text}; }} .why {{ fill: {dim}; }}
"""
_KINDS: Final = "text.{kind} {{ fill: {colour}; }} .bar.{kind} {{ stroke: {colour}; }}\n"


def _palette(kinds: Mapping[str, str], **colours: str) -> str:
    return _COLOURS.format(**colours) + "".join(_KINDS.format(kind=kind, colour=each) for kind, each in kinds.items())


LIGHT: Final = _palette(
    {"delegate": "#1a7f37", "escalate": "#b3261e", "forward": "#3f51b5", "ignore": "#6e7781", "owner": "#7a4f00"},
    page="#fff",
    card="#f6f8fa",
    line="#d0d7de",
    text="#1f2328",
    dim="#57606a",
)
DARK: Final = _palette(
    {"delegate": "#7ee787", "escalate": "#ff8a80", "forward": "#9fa8ff", "ignore": "#9198a1", "owner": "#f2cc60"},
    page="#1e2129",
    card="#282c36",
    line="#4a5060",
    text="#e6edf3",
    dim="#b1b8c1",
)
_FORMAT: Final = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>A week of events, and who decided what and why</title>
<style>
text {{ font: 11px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
.name {{ font: bold 12px system-ui, "DejaVu Sans", sans-serif; }}
.delegate, .escalate, .forward, .ignore, .owner, .result {{ font-weight: bold; }}
.line {{ fill: none; stroke-width: 1px; }} .bar {{ fill: none; stroke-width: 4px; }}
{light}@media (prefers-color-scheme: dark) {{
{dark}}}
</style>
<rect class="page" width="{width}" height="{height}" rx="8"/>
{parts}
</svg>
"""


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        found = lived(Path(made))
    (FOLDER / "week.svg").write_text(drawn(found), encoding="utf-8")
    TRACE.write_text(found.trace, encoding="utf-8")
    sys.stdout.write(found.text)
