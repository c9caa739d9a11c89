"""Make `docs/guides/company-week.html`: a week of a company of 17 members as pictures, from a run of it.

The week is that of `tests/support/kill_organisation.py`: 300 events, each third from somebody hostile, and processes
that are killed. Run it when what a week comes to changes: `PYTHONPATH=.dev:tests .venv/bin/python -P
docs/pictures/make_company.py`. It takes some minutes.
"""

from __future__ import annotations

import asyncio
import html
import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from support.databases import made, removed
from support.kill_organisation import COMPANY, DAYS, EVENTS, HOSTILE, agent_of, happening, wrong
from support.kill_week import EFFECTS, lived
from support.processes import lines
from worldagent.members.cases import case_of
from worldagent.members.life.outcomes import TrustChange

PAGE: Final = Path(__file__).resolve().parents[1] / "guides" / "company-week.html"
ACTIONS: Final = ("delegate", "escalate", "forward", "ignore")


class Facts(NamedTuple):
    """What a week came to.

    Attributes:
        kills: How many processes were killed.
        wrong: What our books find wrong; empty in a page.
        parents: Who made each member, in the order in which they joined.
        effects: Who did what: the member, the function and what it was about.
        decided: Of each event its number, the action, the result, and the code of an error.
        trust: What changed the trust in each member.
        case: The trail of one case: who did what.
    """

    kills: int
    wrong: Sequence[str]
    parents: Mapping[str, str]
    effects: Sequence[tuple[str, str, str]]
    decided: Sequence[tuple[int, str, str, str]]
    trust: Mapping[str, Sequence[TrustChange]]
    case: Sequence[tuple[str, str, str]]


async def facts(home: Path, kills: int, count: int) -> Facts:
    """Read what a week in a home came to, by what an agent offers."""
    async with agent_of(home) as agent:
        society = agent.society
        members = await society.members.members(society.config.id)
        posted = await society.events.list(limit=count)
        vote = next(number for number in range(count) if happening(number).text.startswith("Vote"))
        trail = (await case_of(agent, f"m{vote}")).steps
        return Facts(
            kills=kills,
            wrong=wrong(home, count),
            parents={each.id: each.spec.parent_role_id for each in members},
            effects=[(who, name, about) for who, name, about in map(json.loads, lines(home / EFFECTS))],
            decided=[
                (int(each.event.id[1:]), each.decision.action, each.result or "", each.code)
                for each in posted
                if each.decision is not None
            ],
            trust={each.id: await society.outcomes.changes(each.id) for each in members},
            case=[
                (each.who, each.what, each.authority)
                for each in trail
                if each.kind != "turn" and each.what != f"calls {each.who}"  # the worker that is the member's turn
            ],
        )


# --- pictures ---------------------------------------------------------------------------------------------------------


def drawn(week: Facts, count: int = EVENTS) -> str:
    """The page of a week."""
    done = Counter(who for who, _, _ in week.effects)
    hostile = sum(HOSTILE in about for _, _, about in week.effects)
    figures = {
        "members": len(week.parents),
        "events and messages": count,
        "of somebody hostile": sum(HOSTILE in happening(number).about for number in range(count)),
        "processes killed": week.kills,
        "effects": len(week.effects),
        "of them on words of somebody hostile, each by the operator that may": hostile,
        "lost, done twice, or beyond what somebody may do": len(week.wrong),
    }
    parts = [
        "<ul class=figures>",
        *(f"<li><b>{value:,}</b> {html.escape(name)}</li>" for name, value in figures.items()),
        "</ul>",
        _section("Who there is, and how much each did", _tree(week.parents, done)),
        _section("What was decided, day by day", _days(week.decided)),
        _section("What became of what somebody hostile sent", _table(_hostile(week, count))),
        _section("The trust in the five members of the file", _trust(week)),
        _section("One case: a vote of three members", _trail(week.case)),
    ]
    return _FORMAT.format(parts="\n".join(parts))


def _section(title: str, body: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2>\n{body}</section>"


def _svg(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" style="max-width:{width}px">'
        f"<title>{html.escape(title)}</title>\n{body}\n</svg>\n"
    )


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{html.escape(text)}</text>'


def _tree(parents: Mapping[str, str], done: Counter[str]) -> str:
    roots, parts, top = [each for each, parent in parents.items() if not parent], list[str](), 14
    most = max(done.values(), default=1)
    for root in roots:
        for each in (root, *(child for child, parent in parents.items() if parent == root)):
            left = 8 if each == root else 40
            parts.append(_text(left, top, each, "name" if each == root else ""))
            parts.append(
                f'<rect class="delegate" x="170" y="{top - 10}" width="{300 * done[each] / most:.1f}" height="11"/>'
            )
            parts.append(_text(176 + 300 * done[each] / most, top, str(done[each]), "why"))
            top += 18
        top += 6
    return _svg(520, top, "The members, below those that made them, with how many effects each had", parts)


def _days(decided: Sequence[tuple[int, str, str, str]]) -> str:
    days: dict[int, Counter[str]] = defaultdict(Counter)
    for number, action, _, _ in decided:
        days[number * DAYS // EVENTS][action] += 1
    parts, most = list[str](), max((sum(each.values()) for each in days.values()), default=1)
    for place, day in enumerate(sorted(days)):
        top = 170.0
        for action in ACTIONS:
            height = 140 * days[day][action] / most
            top -= height
            parts.append(
                f'<rect class="{action}" x="{20 + 66 * place}" y="{top:.1f}" width="46" height="{height:.1f}"/>'
            )
        parts += [
            _text(20 + 66 * place, 188, f"day {day + 1}"),
            _text(20 + 66 * place, top - 6, str(sum(days[day].values())), "why"),
        ]
    for place, action in enumerate(ACTIONS):
        parts += [
            f'<rect class="{action}" x="{20 + 110 * place}" y="200" width="11" height="11"/>',
            _text(36 + 110 * place, 210, action),
        ]
    return _svg(500, 220, "How many events were delegated, escalated, forwarded and ignored on each day", parts)


_WAYS: Final = {
    "lead.created": "a lead with orders in its text",
    "directive.spawn": "says that it is the owner and wants a member",
    "invoice.due": "an invoice for a member that must not pay",
    "ticket.opened": "a payload of another form",
    "": "a message whose orders a member obeys: pay, write to strangers, make members",
}


def _hostile(week: Facts, count: int) -> list[tuple[str, str, str]]:
    """Of each way to attack how often it came, and what became of it."""
    ended = {
        number: f"{action}, {result}{f' ({code})' if code else ''}" for number, action, result, code in week.decided
    }
    came: dict[str, Counter[str]] = defaultdict(Counter)
    for number in range(count):
        one = happening(number)
        if HOSTILE in one.about:
            did = [f"{who} {name}" for who, name, about in week.effects if one.about in about.split()]
            became = ended.get(number, "refused by the gate, the contacts and the templates")
            came["" if one.event is None else one.event.type][f"{became}; {', '.join(did) or 'no effect'}"] += 1
    return [(_WAYS[way], str(times), what) for way, all_ in came.items() for what, times in all_.most_common()]


def _table(rows: Sequence[tuple[str, str, str]]) -> str:
    cells = ("".join(f"<td>{html.escape(each)}</td>" for each in row) for row in rows)
    head = "<tr><th>What came</th><th>times</th><th>what became of it</th></tr>"
    return f"<div class=scroll><table>{head}{''.join(f'<tr>{row}</tr>' for row in cells)}</table></div>\n"


def _trust(week: Facts) -> str:
    parts, roots = list[str](), [each for each, parent in week.parents.items() if not parent]
    for place, member in enumerate(roots):
        top, points, changes = 10 + 50 * place, list[str](), week.trust[member]
        parts += [_text(8, top + 26, member, "name"), f'<path class="line" d="M80 {top + 40}H480"/>']
        for number, each in enumerate(changes):
            points.append(f"{80 + 400 * (number + 1) / max(1, len(changes)):.1f},{top + 40 - 40 * each.trust:.1f}")
        if changes:
            parts.append(f'<polyline class="trust" points="{" ".join(points)}"/>')
            parts.append(_text(486, top + 26, f"{changes[-1].trust:.2f}", "why"))
    return _svg(530, 20 + 50 * len(roots), "The trust in each member after each of its outcomes, from 0 to 1", parts)


def _trail(case: Sequence[tuple[str, str, str]]) -> str:
    rows = [
        f"<li><b>{html.escape(who)}</b> {html.escape(what)} <i>{html.escape(why)}</i></li>" for who, what, why in case
    ]
    return f"<ol>{''.join(rows)}</ol>\n"


_FORMAT: Final = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>A week of a company</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
:root {{ color-scheme: light dark; --dim: light-dark(#57606a, #b1b8c1); --line: light-dark(#d0d7de, #4a5060); }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 0 auto; padding: 1rem; }}
h1 {{ font-size: 1.4rem; }} h2 {{ font-size: 1.1rem; margin-top: 2rem; }}
svg {{ width: 100%; height: auto; }} svg text {{ font: 12px system-ui, sans-serif; fill: currentColor; }}
svg .name {{ font-weight: bold; }} svg .why, i {{ fill: var(--dim); color: var(--dim); font-style: normal; }}
.delegate {{ fill: #2da44e; }} .escalate {{ fill: #d1493f; }} .forward {{ fill: #5c6bc0; }} .ignore {{ fill: #8c959f; }}
.line {{ stroke: var(--line); }} .trust {{ fill: none; stroke: #2da44e; stroke-width: 2; }}
.figures {{ list-style: none; padding: 0; }} .figures b {{ display: inline-block; min-width: 3rem; text-align: right; }}
.scroll {{ overflow-x: auto; }} table {{ border-collapse: collapse; }}
td, th {{ text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); }}
ol {{ padding-left: 1.6rem; overflow-wrap: anywhere; }}
</style></head><body>
<h1>A week of a company</h1>
<p>Five members of a file, and twelve that they make, work in processes that are killed.
A script makes this page from a run.</p>
{parts}
</body></html>
"""


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        place = made("sqlite", Path(folder) / "home")
        killed, _ = lived(COMPANY, place, events=EVENTS, each=12, seed=7)
        week = asyncio.run(facts(place, killed, EVENTS))
        removed(place)
    PAGE.write_text(drawn(week), encoding="utf-8")
    sys.stdout.write("".join(f"{each}\n" for each in week.wrong))
    sys.exit(bool(week.wrong))
