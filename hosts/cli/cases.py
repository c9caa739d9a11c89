"""The command `case`: what followed from one event, one message or one turn. It needs no model."""

from __future__ import annotations

import asyncio
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from .command import command
from .operating import ask, fields_of
from .options import ThreadsOptions
from .output import Output, cost_text, counted, time_text
from .trace import replace_own

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..service.cases import CaseRecord, CaseStepRecord

_HEAD: Final = ("WHEN", "WHO", "WHAT", "RESULT", "ALLOWED BY", "WHY", "COST")
_WIDTHS: Final = (16, 12, 40, 12, 20, 24)
_BEGIN: Final = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>'
_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:76rem;padding:0 1rem;color:#1b1d22}"
    "table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #d8dbe2;padding:.4rem .6rem;"
    "text-align:left;vertical-align:top;overflow-wrap:anywhere}th{white-space:nowrap}"
    "@media(prefers-color-scheme:dark){body{background:#16181d;color:#e7e9ee}td,th{border-color:#3a3f4a}}"
)

app = typer.Typer()


@command(app, "case", panel="Configuration", asks=("case_show",))
async def case(options: ThreadsOptions, output: Output, id: str, html: Path | None = None) -> None:
    """Tell a case: all that followed from one event, one message of a person or one turn.

    It says who did what, what allowed it, why, and what it cost: forwards, decisions, messages, members that were made,
    turns, calls and approvals.

    [bold]Examples[/bold]

      worldagent case lead-7

      worldagent case lead-7 --html case.html

    Args:
        id (ID): The id of an event, of a message between members, of a turn that sent one, or of the case.
        html (--html FILE; Output): Also write the case as a page of its own. An existing page of a case is replaced.
    """
    found = (await ask(options, "case_show", output, id=id)).case
    if html is not None:
        await asyncio.to_thread(replace_own, html, _page(found), _BEGIN)
        output.note(f"the page of the case is in {html}")
    output.result({"case": fields_of(found)}, "\n".join(_lines(found, output)))


def _lines(found: CaseRecord, output: Output) -> Iterator[str]:
    yield output.table(_HEAD, [_row(each) for each in found.steps], widths=_WIDTHS)
    yield ""
    yield from _about(found)


def _row(step: CaseStepRecord) -> Sequence[str]:
    cost = (step.usage or {}).get("cost")
    shown = "" if cost is None else cost_text(cost)
    return (time_text(step.at), step.who, step.what, step.result, step.authority, step.why, shown)


def _about(found: CaseRecord) -> Iterator[str]:
    """What the whole case cost, and whether it is over."""
    for each in found.costs:
        cost = "cost unknown" if each.cost is None else cost_text(each.cost)
        yield f"{each.who}: {counted(each.calls, 'call')} of models, {cost}"
    unknown = sum(each.kind == "turn" and each.usage is None for each in found.steps)
    if unknown:
        yield f"what {counted(unknown, 'turn')} used is not known: no events are kept"
    if found.cut:
        yield "the case has more messages than are shown"
    yield "something of it waits or is still to be done" if found.open else "all of it is over"


def _page(found: CaseRecord) -> str:
    """The case as a page that needs no other file."""
    head = "".join(f'<th scope="col">{each.capitalize()}</th>' for each in _HEAD)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _row(each))}</tr>" for each in found.steps)
    about = "".join(f"<li>{escape(each)}</li>" for each in _about(found))
    title = escape(f"Case {found.id}")
    return (
        f"{_BEGIN}{title}</title>"
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body><h1>{title}</h1>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table><ul>{about}</ul></body></html>\n"
    )
