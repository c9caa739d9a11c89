"""The command `workspace try`: what a recorded week would be with another file. It needs no model and no home."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .command import command
from .output import Output, table
from .workspace import app as workspace_app

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...members.data.workspace import RoutingDecision
    from ...members.trying import Trial, TriedEvent


@command(workspace_app, "try", asks=("workspace_try",))
async def try_file(output: Output, file: Path, lines: str) -> None:
    """Replay recorded events with a file of a workspace, and show what would differ. Nothing is run or stored.

    What came of an operator is known if it ran for the same event; otherwise it is unknown, and the trust after it is a
    range. Classes that decide in code, the policy of the agent and what models say are not replayed.

    [bold]Examples[/bold]

      worldagent workspace events --export week.jsonl

      worldagent workspace try team.yaml --events week.jsonl

    Args:
        file (FILE): The file of the workspace.
        lines (--events FILE|-; The event): What [bold]workspace events --export[/bold] wrote, or events as
            [bold]workspace emit[/bold] takes them. - reads standard input.
    """
    from ...members.events.recorded import read_week
    from ...members.trying import try_week
    from ...members.workspace_file import load_workspace
    from .sources import text

    config = load_workspace(file)
    week = read_week(text("--events", lines if lines == "-" else f"@{lines}"), lines)
    trial = try_week(config, week)
    output.result({"tried": trial.to_json()}, "\n".join(_text(trial)))


def _text(trial: Trial) -> Iterator[str]:
    shown = [each for each in trial.events if each.differs or each.then is None]
    differ = sum(each.differs for each in shown)
    if shown:
        yield table(("EVENT", "TYPE", "THEN", "NOW", "WHY"), [_row(each) for each in shown])
        yield ""
    new = len(shown) - differ
    yield f"{differ} of {len(trial.events) - new} events differ{f', and {new} were not decided about' if new else ''}"
    then, now, unknown = trial.asked
    yield f"times that a person is asked: {then} then, {now} now{f', {unknown} unknown' if unknown else ''}"
    spent, costs, runs = trial.costs
    more = f", with the costs of {runs} unknown" if runs else ""
    yield f"US dollars for models: {spent:.4f} then, {costs:.4f} now{more}"
    for id_ in dict.fromkeys((*trial.then, *trial.members)):
        yield from _member(trial, id_)


def _row(tried: TriedEvent) -> tuple[str, ...]:
    then, result = tried.then, f"{tried.result}{f' ({tried.code})' if tried.code else ''}"
    before = "" if then is None else _said(then.member, then.trail, [then.decision], then.result or then.state)
    why = " or ".join(dict.fromkeys(each.reason for each in tried.decisions))
    now = _said(tried.member, tried.trail, tried.decisions, result)
    return tried.event.id, tried.event.type, before, now, why


def _said(member: str, trail: Sequence[str], decisions: Sequence[RoutingDecision], result: str) -> str:
    """A decision in words, such as `cro: delegate qualify_lead, done`."""
    what = dict.fromkeys(f"{each.action} {each.operator_id or each.target_role_id or ''}".strip() for each in decisions)
    said = ", ".join([" or ".join(what), result] if what else [result])
    return f"{' -> '.join((*trail, member)) or 'nobody'}: {said}"


def _member(trial: Trial, id_: str) -> Iterator[str]:
    """What differs of a member: whether it is there, its state, and the trust in it."""
    then, now = trial.then.get(id_), trial.members.get(id_)
    if then is None or now is None:
        yield f"{id_} is {'in the workspace' if then is None else 'not in the workspace'} now"
        return
    if then.status is not now.life.status:
        yield f"{id_} is {then.status.value} then, {now.life.status.value} now"
    low, high = trial.trust[id_]
    for name in sorted({*then.trust.scores, *low.scores, *high.scores}):
        before, *after = (each.trust_for(name) for each in (then.trust, low, high))
        if [before, before] != after:
            least, most = after
            span = f"{least:.2f}" if least == most else f"{least:.2f} to {most:.2f}"
            yield f"trust in {id_} for {name}: {before:.2f} then, {span} now"
