"""The commands of `evals`: the kept runs of `eval`. None needs a model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from .command import command, storage_of
from .evaluate import run_table, run_text
from .options import HOME
from .output import Output, time_text

if TYPE_CHECKING:
    from ...testing.evals.runs import CaseChange, EvalResult, EvalRun

_COLUMNS: Final = ("RUN", "BEGAN", "CASES", "REPEATS", "SCORE", "FILE")
_CHANGES: Final = ("CASE", "BEFORE", "AFTER", "CHANGE", "NOTE")
_WIDTHS: Final = (40,)

app = typer.Typer(name="evals", no_args_is_help=True)


@app.callback()
def _evals() -> None:
    """Kept runs of [bold]worldagent eval[/bold]: list, show and compare them.

    They have messages, answers, scores and costs. They never have a role.

    [bold]Example[/bold]

      worldagent evals compare before after
    """


@command(app, "list")
async def list_evals(output: Output, home: Path | None = HOME) -> None:
    """List the kept runs, the newest first.

    [bold]Example[/bold]

      worldagent evals list
    """
    from ...core.errors import EvalInvalid
    from ...testing.evals.runs import list_runs

    found: list[EvalRun] = []
    for each in list_runs(storage_of(home).evals):
        if isinstance(each, EvalInvalid):
            output.note(f"skipped: {each.problem}")
        else:
            found.append(each)
    rows = [
        (run.id, time_text(run.began), str(len(run.results)), str(run.repeats), _score(run.score), run.source)
        for run in found
    ]
    value = [run.model_dump(mode="json", exclude={"results"}) | {"cases": len(run.results)} for run in found]
    output.result({"runs": value}, output.table(_COLUMNS, rows, widths=()) if rows else "there are no runs")


@command(app, "show")
async def show(output: Output, run: str, case: str | None = None, home: Path | None = HOME) -> None:
    """Show a run as a table, or the answers to one of its cases.

    [bold]Examples[/bold]

      worldagent evals show before

      worldagent evals show before capital-of-france

    Args:
        run (RUN): The id of a run, as evals list shows it, or a file of one that ends with .json.
        case ([CASE]): The id of a case, to see its answers.
    """
    from ...core.errors import EvalInvalid
    from ...testing.evals.runs import find_run

    found = find_run(storage_of(home).evals, run)
    if case is None:
        output.result(found.model_dump(mode="json"), f"{run_table(found, output)}\n\n{run_text(found)}")
        return
    results = [each for each in found.results if each.id == case]
    if not results:
        names = ", ".join(each.id for each in found.results[:20])
        raise EvalInvalid(f"the run {found.id!r} has no case {case!r}", remedy=f"name one of: {names}")
    output.result({"result": results[0].model_dump(mode="json")}, "\n".join(_answers(results[0])))


@command(app, "compare")
async def compare(output: Output, before: str, after: str | None = None, home: Path | None = HOME) -> None:
    """Compare two runs case by case, with what got worse first.

    [bold]Examples[/bold]

      worldagent evals compare before

      worldagent evals compare before after

      worldagent evals compare baseline.json 20260102-101500-1f2e

    Args:
        before (BEFORE): The id of a run, as evals list shows it, or a file of one that ends with .json.
        after ([AFTER]): The id of a run, as evals list shows it, or a file of one that ends with .json. Default: the
            newest run.
    """
    from ...testing.evals.runs import compare_runs, find_run, newest_run

    folder = storage_of(home).evals
    old = find_run(folder, before)
    new = newest_run(folder) if after is None else find_run(folder, after)
    changes = compare_runs(old, new)
    rows = [
        (each.id, _score(each.before), _score(each.after), _signed(each.difference), _mark(each)) for each in changes
    ]
    value = {
        "before": {"run": old.id, "score": old.score, "deviation": old.deviation},
        "after": {"run": new.id, "score": new.score, "deviation": new.deviation},
        "cases": [
            {
                "id": each.id,
                "before": each.before,
                "after": each.after,
                "difference": each.difference,
                "mark": each.mark,
                "edited": each.edited,
            }
            for each in changes
        ],
    }
    table = output.table(_CHANGES, rows, widths=_WIDTHS)
    output.result(value, f"{table}\n\n{_summary(old, new, changes)}")


@command(app, "rm")
async def remove(output: Output, run: str, home: Path | None = HOME) -> None:
    """Remove a kept run.

    [bold]Example[/bold]

      worldagent evals rm before

    Args:
        run (RUN): The id of a run, as evals list shows it.
    """
    from ...testing.evals.runs import remove_run

    remove_run(storage_of(home).evals, run)
    output.result({"removed": run}, f"{run}: removed")


# --- the text ---------------------------------------------------------------------------------------------------------


def _answers(result: EvalResult) -> Iterator[str]:
    from ..service.pauses import source_text

    yield f"message: {result.message}"
    if result.expected is not None:
        wanted = result.expected
        yield f"expected: {wanted if isinstance(wanted, str) else json.dumps(wanted, ensure_ascii=False)}"
    yield f"metric: {result.metric}"
    for each in result.attempts:
        yield ""
        yield f"attempt {each.repeat}: {_score(each.score)}"
        if each.error is not None:
            yield f"error: {each.error.message} ({each.error.code})"
        if each.error is None or each.reply:
            yield f"answer: {each.reply}"
        for name, value in (("feedback", each.feedback), ("calls", each.calls), ("refused", each.refused)):
            if value:
                yield f"{name}: {value if isinstance(value, str) else ', '.join(value)}"
        for flow in each.flows:
            by = f", {flow.decision} by {flow.gate}" if flow.decision else ""
            yield f"{flow.target}: {source_text([flow.model_dump()])}{by}"


def _summary(old: EvalRun, new: EvalRun, changes: list[CaseChange]) -> str:
    counts = {mark: sum(each.mark == mark for each in changes) for mark in ("worse", "better", "same", "new", "gone")}
    shown = ", ".join(f"{count} {mark}" for mark, count in counts.items() if count)
    runs = [
        f"{_score(run.score) or 'none'}{'' if run.deviation is None else f' (standard deviation {run.deviation:.3f})'}"
        for run in (old, new)
    ]
    return f"score {runs[0]} in {old.id!r}, {runs[1]} in {new.id!r}: {shown or 'no cases'}"


def _mark(change: CaseChange) -> str:
    mark = "" if change.mark == "same" else change.mark
    return ", ".join(filter(None, [mark, "the case differs" if change.edited else ""]))


def _signed(difference: float | None) -> str:
    return "" if difference is None else f"{difference:+.3f}"


def _score(score: float | None) -> str:
    return "" if score is None else f"{score:.3f}"
