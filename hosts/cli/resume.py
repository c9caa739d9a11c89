"""The command `resume`: resumes a turn that waits for a person, was stopped, failed or was interrupted."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from .command import Work, command
from .options import ANSWERS, ResumingOptions
from .output import Output

if TYPE_CHECKING:
    from ...agent import WorldAgent
    from ...role_resolution import Role

app = typer.Typer()


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(ResumingOptions):
    """The options of `resume`."""

    thread: Annotated[str, typer.Argument(metavar="THREAD", help="The thread whose turn to resume.")]
    answer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[ID=]ANSWER",
            help="An answer to a pause: yes, no, edit FIELD=VALUE or always for a call; an option, a text, or the "
            "fields of a form for a question. If only one pause waits, ID can be omitted. Repeatable.",
            rich_help_panel=ANSWERS,
        ),
    ] = None
    approve: Annotated[
        list[str] | None,
        typer.Option(metavar="[ID]", help="Approve the call that waits. Repeatable.", rich_help_panel=ANSWERS),
    ] = None
    approve_all: Annotated[
        bool,
        typer.Option(
            "--approve-all", help="Approve every call that waits and is not rejected.", rich_help_panel=ANSWERS
        ),
    ] = False
    reject: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[ID][=REASON]",
            help="Reject the call that waits. The caller receives the reason. Repeatable.",
            rich_help_panel=ANSWERS,
        ),
    ] = None


class BareValues(TyperCommand):
    """A command whose `--approve` and `--reject` can be given without a value, which typer does not support."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Add an empty value after each of them that has none."""
        given: list[str] = []
        for word, after in zip_longest(args, args[1:]):
            given.append(word)
            if word in ("--approve", "--reject") and (after is None or after.startswith("-")):
                given.append("")
        return super().parse_args(ctx, given)


@app.command(cls=BareValues, rich_help_panel="Turns")
@command
def resume(options: ResumeOptions, output: Output) -> Work:
    """Resume a turn that waits for a person, was stopped, failed temporarily, or was interrupted with its process.

    Without an answer, it prints what the turn waits for, and the exit code is 3. Give the same options for the agent
    as when the turn began. Other users of the machine can see the answers in its list of processes.

    [bold]Examples[/bold]

      worldagent resume t1

      worldagent resume t1 --answer red

      worldagent resume t1 --app shop:agent --approve
    """
    from .answers import checked_role
    from .session import open_agent

    call_role = checked_role(options, "resume", None)
    return _resume(open_agent(options, output), options, output, call_role)


async def _resume(agent: WorldAgent, options: ResumeOptions, output: Output, call_role: Role | None) -> int:
    from ...agent import Turn
    from ..pauses import unanswered
    from .answers import OptionAnswers, check_resumable, resume_turn, would_only_wait
    from .home_threads import open_threads
    from .turn import report, resume_command

    scope = agent.thread(options.thread).scope
    # Read before the agent opens, so that printing the pauses needs no model.
    async with open_threads(agent.storage) as threads:
        found = None if threads is None else await threads.register.find(scope)
        pauses = () if threads is None else unanswered(await threads.register.pauses(scope))
        gone = frozenset[str]() if threads is None else await threads.register.answered(scope)
    state = check_resumable(found, agent.workspace, options.thread)
    option_answers = OptionAnswers(options.thread, pauses, gone)
    answers = dict(option_answers.answers(options.answer or (), options.approve or (), options.reject or ()))
    if options.approve_all:
        answers |= option_answers.approve_rest()
    if not answers and would_only_wait(state, pauses):
        waiting = Turn(id=state.turn_id, thread=options.thread, status="paused", pauses=pauses)
        return report(waiting, output, resume_command(options, options.thread), options)
    return await resume_turn(agent, options, output, (options.thread, answers, call_role))
