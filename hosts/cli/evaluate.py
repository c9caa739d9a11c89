"""The command `eval`: runs a file of cases against an agent, scores the answers, and keeps the run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import typer

from .command import DEBUG, Work, bad_usage, command, print_raised, storage_of, until_sigterm
from .exits import DONE, FAILED, TERMINATED
from .options import JSON_RESULT, AgentOptions, option_group
from .output import Output, cost_text, count_text, counted, duration_text, tokens_text
from .progress import shown_progress

if TYPE_CHECKING:
    from ...agent import WorldAgent
    from ...core import ModelUsage
    from ...role_resolution.keys import RoleKey
    from ...testing.evals.cases import EvalCase
    from ...testing.evals.running import Evaluation
    from ...testing.evals.runs import EvalResult, EvalRun

_COLUMNS: Final = ("CASE", "SCORE", "SPREAD", "TOKENS", "COST", "TIME", "NOTE")
_WIDTHS: Final = (40,)  # of the case
_DATABASES: Final = ("WORLDAGENT_DATABASE_URL", "WORLDAGENT_ATTACHMENTS_URL")
_HOME: Final = "WORLDAGENT_HOME"

app = typer.Typer()


@option_group
class EvalOptions(AgentOptions):
    """The options of `eval`.

    Attributes:
        file (FILE): The cases: YAML (.yaml, .yml, .json) with a list, or JSON Lines (.jsonl).
        metric (--metric exact|contains|flows|MODULE:FUNCTION; Cases): Scores an answer: a function that takes a case
            and an answer and returns a bool, or a number from 0 to 1. exact and contains compare the answer with
            expected, flows compares where arguments come from. Modules of the current folder can be named. A case can
            name another metric. Default: contains.
        only (--only ID|TAG; Cases): Run only the cases with this id or tag. Repeatable.
        repeat (--repeat N; Cases): Run each case N times, which shows how much the score varies.
        jobs (--jobs N; Cases): How many turns run at once.
        bound (--bound SCORE; Cases): Exit with 1 if the score is under SCORE, from 0 to 1.
        name (--name ID; Cases): The id that the run is kept under. Default: the time.
        home (--home FOLDER; Where): Run in this home, which then has the threads and traces of the cases. Default: a
            temporary home. The run is kept in this home, else in that of the settings.
        guard (--guard off|on|off,on; Cases): Whether the turns are guarded. With off,on all cases run both ways, and
            are kept as two runs. Default: as the settings say.
        role (--role TEXT|@FILE|-; Cases): The role of each case that has none. @FILE reads a file. It is never stored.
    """

    file: Path
    metric: str | None = None
    only: list[str] | None = None
    repeat: int = 1
    jobs: int = 4
    bound: float | None = None
    name: str | None = None
    home: Path | None = None
    role: str | None = None
    guard: str | None = None
    json: bool = JSON_RESULT
    verbose: bool = typer.Option(False, "--verbose", "-v", hidden=True)


@command(app, "eval", panel="Configuration")
def eval_cases(options: EvalOptions, output: Output) -> Work:
    """Run a file of cases against an agent, score the answers, and keep the run.

    Each attempt is a turn on a new thread, in a temporary home unless you give --home. No person is asked: a call that
    requires an approval is refused, and tools that need none run for real. Progress is printed on stderr.
    [bold]worldagent evals[/bold] lists and compares kept runs, which have no role.

    Exit code 1 means that the score is under --bound, that a metric failed or, without --bound, that a turn failed.

    [bold]Examples[/bold]

      worldagent eval cases.yaml --lm openai/gpt-4o-mini --bound 0.8

      worldagent eval cases.jsonl --app shop:agent --metric scores:polite --repeat 5 --name before

      worldagent eval cases.yaml --app shop:agent --guard off,on --name mail
    """
    from ...core.checks import check_share
    from ...testing.evals.runs import already_kept, make_folder, run_file

    if options.bound is not None:
        check_share("--bound", options.bound)
    folder = storage_of(options.home).evals
    guards = _guards(options.guard)
    for name in _names(options, guards):
        if name and run_file(folder, name).exists():
            raise already_kept(name)
    cases = list(_cases(options))
    make_folder(folder)
    with ExitStack() as stack:
        agent = _agent(options, output, stack)
        report = stack.enter_context(shown_progress(output))
        runs = [
            _evaluation(options, cases, report, name, guard)
            for name, guard in zip(_names(options, guards), guards, strict=True)
        ]
        return _eval(options, output, runs, agent, _role_key(options, cases), stack.pop_all())


def _guards(said: str | None) -> list[bool | None]:
    """Whether the turns of each run are guarded."""
    if said is None:
        return [None]
    known = {"off": False, "on": True}
    words = said.replace(" ", "").split(",")
    if len(set(words)) < len(words) or not known.keys() >= set(words):
        raise bad_usage(
            f"--guard: {said!r} is none of off, on and off,on", remedy="write --guard off,on to compare both"
        )
    return [known[word] for word in words]


def _names(options: EvalOptions, guards: Sequence[bool | None]) -> list[str]:
    """The ids of the runs; empty if they are made of the time."""
    if len(guards) == 1:
        return [options.name or ""]
    from ...testing.evals.runs import new_run_id

    head = options.name or new_run_id(datetime.now(UTC))
    return [f"{head}-{'on' if guard else 'off'}" for guard in guards]


def _cases(options: EvalOptions) -> Iterator[EvalCase]:
    """The cases of the file that the options select, each with its role."""
    from ...testing.evals.cases import read_cases
    from .sources import role as role_of

    read = read_cases(options.file.expanduser())
    names = {name for case in read for name in (case.id, *case.tags)}
    unknown = [each for each in options.only or () if each not in names]
    if unknown:
        raise bad_usage(
            f"--only: no case of {str(options.file)!r} has the id or the tag {unknown[0]!r}",
            remedy=f"name one of {', '.join(sorted(names)[:20])}",
        )
    role = role_of(options.role)
    for case in read:
        if not options.only or {case.id, *case.tags} & set(options.only):
            yield replace(case, role=role) if case.role is None else case


def _evaluation(options: EvalOptions, cases: list[EvalCase], report: Any, name: str, guard: bool | None) -> Evaluation:
    from ...testing.evals.running import Evaluation

    return Evaluation(
        cases,
        options.metric,
        repeat=options.repeat,
        jobs=options.jobs,
        source=str(options.file),
        run_id=name,
        guard=guard,
        on_metric_error=print_raised if DEBUG.get() else lambda error: None,
        progress=lambda done, total: report("turns", done, total),
    )


# --- the home ---------------------------------------------------------------------------------------------------------


def _agent(options: EvalOptions, output: Output, stack: ExitStack) -> WorldAgent:
    """The agent that the options describe, in the home that they name or in one that `stack` removes."""
    from .agents import open_agent

    if options.home is not None:
        return open_agent(options, output)
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="worldagent-eval-"))).resolve()
    with _settings_of(folder):
        agent = open_agent(options, output)
    _check_home(agent, folder)
    return agent


@contextmanager
def _settings_of(folder: Path) -> Generator[None]:
    """Give agents that are made in this block this home, also those of an app, which reads the settings itself."""
    names = (_HOME, *_DATABASES)
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ[_HOME] = str(folder)
    try:
        yield
    finally:
        del os.environ[_HOME]
        os.environ.update(before)


def _check_home(agent: WorldAgent, folder: Path) -> None:
    """Refuse an agent that would write the threads of the cases next to those of its users."""
    storage = agent.storage
    if storage.url is not None or storage.attachments_url is not None:
        raise bad_usage(
            "the settings file or the app names a database or a place of attachments, and an eval must not write there",
            remedy="give --home FOLDER to run there all the same, or use another settings file for this command: "
            "WORLDAGENT_SETTINGS=FILE",
        )
    if storage.resolve().resolve() != folder:
        raise bad_usage(
            f"the agent of --app has a home of its own, {str(storage.resolve())!r}, and an eval must not write there",
            remedy="make the app's agent without storage=, or give --home with that folder to run there all the same",
        )


def _role_key(options: EvalOptions, cases: list[EvalCase]) -> RoleKey | None:
    """The key of the user's home, since the digests of two temporary homes do not compare. None is the agent's own."""
    from ...agent import Settings
    from ...role_resolution.keys import RoleKey

    if options.home is not None or Settings().role_key is not None or all(case.role is None for case in cases):
        return None
    return RoleKey.open(storage_of(None).role_key)


# --- the run ----------------------------------------------------------------------------------------------------------


async def _eval(
    options: EvalOptions,
    output: Output,
    runs: list[Evaluation],
    agent: WorldAgent,
    key: RoleKey | None,
    stack: ExitStack,
) -> int:
    from ...testing.evals.runs import keep_run, run_file

    folder = storage_of(options.home).evals
    ended: list[EvalRun] = []
    try:
        with stack:
            async with agent:
                for evaluation in runs:
                    if (run := await until_sigterm(evaluation.run(agent, key=key))) is None:
                        break
                    ended.append(run)
    finally:
        for evaluation in runs[len(ended) :]:
            if (partial := evaluation.result()).attempts:
                keep_run(folder, partial)
                output.note(f"kept what ended before: {_kept(options, partial)}")
    for run in ended:
        keep_run(folder, run)
    if len(ended) < len(runs):
        output.failed("terminated", "stopped by SIGTERM", "run the command again")
        return TERMINATED
    problems = [_problem(run, options.bound, _kept(options, run)) for run in ended]
    values = [
        run.model_dump(mode="json")
        | {"bound": options.bound, "passed": not problem, "file": str(run_file(folder, run.id))}
        for run, (problem, _) in zip(ended, problems, strict=True)
    ]
    if len(ended) == 1:
        output.result(values[0], f"{run_table(ended[0], output)}\n\n{run_text(ended[0])}")
    else:
        texts = [f"{run.id}\n{run_table(run, output)}\n\n{run_text(run)}" for run in ended]
        output.result({"runs": values}, "\n\n".join(texts))
        output.note(f"to compare them: worldagent evals compare {ended[0].id} {ended[1].id}")
    for run, (problem, remedy) in zip(ended, problems, strict=True):
        output.note(f"kept: {_kept(options, run)}")
        if problem:
            output.note(f"error: {problem}\nremedy: {remedy}")
    return FAILED if any(problem for problem, _ in problems) else DONE


def _kept(options: EvalOptions, run: EvalRun) -> str:
    home = [] if options.home is None else ["--home", str(options.home)]
    return shlex.join(["worldagent", "evals", "show", *home, run.id])


def _problem(run: EvalRun, bound: float | None, kept: str) -> tuple[str, str]:
    """Why the run does not pass, with a remedy; empty if it does. `kept` is the command that shows the run."""
    turns, metrics = run.errors("turn"), run.errors("metric")
    if metrics:
        failed = f"the metric failed for {counted(len(metrics), 'answer')}: {metrics[0].message}"
        return failed, "correct the metric; worldagent --debug eval prints what it raised"
    if bound is not None and (run.score is None or run.score < bound):
        return f"the score {_score(run.score)} is under the bound {bound:g}", f"see the answers to a case: {kept} CASE"
    if bound is None and turns:
        return f"{counted(len(turns), 'turn')} failed: {turns[0].message}", (
            "correct what the error names; with --bound a failed turn only has the score 0"
        )
    return "", ""


# --- the text ---------------------------------------------------------------------------------------------------------


def run_table(run: EvalRun, output: Output) -> str:
    """A run as a table with a row for each case. Without repeats it has no column for the spread."""
    rows = [_row(result) for result in run.results]
    columns: tuple[str, ...] = _COLUMNS
    if run.repeats == 1:
        columns, rows = (*columns[:2], *columns[3:]), [(*row[:2], *row[3:]) for row in rows]
    return output.table(columns, rows, widths=_WIDTHS)


def _row(result: EvalResult) -> tuple[str, ...]:
    scores = [each.score for each in result.attempts]
    seconds = sum(each.seconds for each in result.attempts) / len(scores) if scores else None
    return (
        result.id,
        _score(result.score),
        f"{min(scores):.2f} to {max(scores):.2f}" if scores else "",
        _tokens(result.usage),
        "?" if result.usage.cost is None else cost_text(result.usage.cost),
        "" if seconds is None else duration_text(seconds),
        _note(result),
    )


def _note(result: EvalResult) -> str:
    if not result.attempts:
        return "not run"
    errors = {each.error.code: None for each in result.attempts if each.error is not None}
    refused = {name: None for each in result.attempts for name in each.refused}
    return ", ".join([*errors, *(f"refused: {name}" for name in refused)])


def run_text(run: EvalRun) -> str:
    """The score of a run, how much it varies, and what it cost."""
    turns = counted(len(run.attempts), "turn")
    turns += "" if run.complete else f" of {len(run.results) * run.repeats}, interrupted"
    spread = ""
    if run.deviation is not None:
        low, high = min(run.scores), max(run.scores)
        spread = f" ({len(run.scores)} repeats: {low:.3f} to {high:.3f}, standard deviation {run.deviation:.3f})"
    usage = run.usage
    cost = "cost unknown" if usage.cost is None else cost_text(usage.cost)
    return (
        f"score {_score(run.score)}{spread}, {counted(len(run.results), 'case')}, {turns}, "
        f"{tokens_text(usage.input_tokens, usage.output_tokens)}, {cost}, {duration_text(run.seconds)}"
    )


def _score(score: float | None) -> str:
    return "" if score is None else f"{score:.3f}"


def _tokens(usage: ModelUsage) -> str:
    from ...core import summed

    return count_text(summed((usage.input_tokens, usage.output_tokens)))
