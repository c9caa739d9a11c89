"""The commands that run turns: `ask`, `chat`, `task` and `resume`. They differ in how the turn begins."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from .command import Work, command
from .options import EVENTS, BeginOptions, ChatOptions, ResumingOptions, TurnOptions, option_group
from .output import Output

if TYPE_CHECKING:
    from ...agent import Thread, TurnStream, WorldAgent
    from ...role_resolution import Role

app = typer.Typer()


@command(app, panel="Turns", asks=("converse",))
def ask(
    options: BeginOptions,
    output: Output,
    thread: str | None = None,
    text: str | None = None,
    attach: list[str] | None = None,
    events: bool = EVENTS,
) -> Work:
    """Send a message to the agent and print its answer.

    At a terminal, the answer appears while it is written. Each message starts a new thread. To continue a conversation,
    name its thread with --thread.

    [bold]Examples[/bold]

      worldagent ask 'What is the capital of France?' --thread trip

      worldagent ask 'And of Spain?' --thread trip --role 'Answer in one word.'

      git diff | worldagent ask 'Review this change:' --role @reviewer.md --lm openai/gpt-4o

      worldagent ask 'What is on it?' --attach photo.png --lm openai/gpt-4o

    Args:
        thread (--thread ID; Where): The conversation to continue. Default: a new one for each call.
        text ([TEXT]): The message. Data that is piped to the command follows it after a blank line. Without TEXT, or
            with -, the command reads the message from standard input.
        attach (--attach FILE|URL): An image or a file to send with the message. Repeatable.
    """
    from ...core import new_id
    from .sources import attachments, message, one_reader
    from .turn_run import new_turn, one_form

    one_form(options.json, events)
    one_reader(options, "TEXT", "-" if text is None else text)
    said, files = message(options, text, output), attachments(attach)
    # A message must not depend on how the previous one ended, so without --thread it gets a new thread.
    name = new_id("ask") if thread is None else thread
    return new_turn(options, output, name, lambda thread, **how: thread.stream(said, attachments=files, **how))


@command(app, panel="Turns")
def chat(options: ChatOptions) -> int:
    """Talk with the agent, message by message.

    Answers appear while they are written. /help lists the commands. A turn that waits for a person asks in the chat,
    even if it began earlier. If stdin or stdout is not a terminal, each line is a message, or the answer to a question
    of the turn, and the results are printed. The exit code is 3 if a turn still waits at the end.

    [bold]Examples[/bold]

      worldagent chat --thread novel --account ana

      worldagent chat --role @reviewer.md --lm openai/gpt-4o

      cat questions.txt | worldagent chat --json
    """
    from ..chat import chat as run_chat

    return run_chat(options)


@command(app, panel="Turns", asks=("task",))
def task(
    options: TurnOptions, output: Output, shape: str, param: list[str] | None = None, params: str | None = None
) -> Work:
    """Dispatch one task to a shape and print its result.

    The built-in shape is [bold]subagent[/bold]: it runs a worker by its name, with the params worker and request.

    [bold]Example[/bold]

      worldagent task subagent --worker 'critic=You judge in one sentence.' -p worker=critic -p request='Judge: ...'

      worldagent task buy -p what=hat --app shop:agent --thread t1

    Args:
        shape (SHAPE): The kind of work, such as subagent.
        param (--param -p KEY=VALUE): One param, as text. Overrides --params. Repeatable.
        params (--params JSON|@FILE|-): The params as a JSON object.
    """
    from ...core.events import ModelWaiting
    from .sources import one_reader, task_params
    from .turn_run import new_turn

    one_reader(options, "--params", params)
    given = task_params(params, param)

    def begin(thread: Thread, **how: Any) -> TurnStream:
        return thread.stream_task(shape, given, **how)

    return new_turn(options, output, options.thread, begin, shown=ModelWaiting)  # it prints only its result and waits


@option_group
class ResumeOptions(ResumingOptions):
    """The options of `resume`.

    Attributes:
        thread (THREAD): The thread whose turn to resume.
        answer (--answer [ID=]ANSWER; Answers): An answer to a pause: yes, no, edit FIELD=VALUE or always for a call; an
            option, a text, or the fields of a form for a question. If only one pause waits, ID can be omitted.
            Repeatable.
        approve (--approve [ID]; Answers): Approve the call that waits. Repeatable.
        approve_all (--approve-all; Answers): Approve every call that waits and is not rejected.
        reject (--reject [ID][=REASON]; Answers): Reject the call that waits. The caller receives the reason.
            Repeatable.
    """

    thread: str
    answer: list[str] | None = None
    approve: list[str] | None = None
    approve_all: bool = False
    reject: list[str] | None = None


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


@command(app, cls=BareValues, panel="Turns", asks=("resume",))
def resume(options: ResumeOptions, output: Output) -> Work:
    """Resume a turn that waits for a person, was stopped, failed temporarily, or was interrupted with its process.

    Without an answer, it prints what the turn waits for, and the exit code is 3. Give the same options for the agent
    as when the turn began. Other users of the machine can see the answers in its list of processes.

    [bold]Examples[/bold]

      worldagent resume t1

      worldagent resume t1 --answer red

      worldagent resume t1 --app shop:agent --approve
    """
    from .agents import open_agent
    from .answers import checked_role

    call_role = checked_role(options, "resume", None)
    return _resume(open_agent(options, output), options, output, call_role)


async def _resume(agent: WorldAgent, options: ResumeOptions, output: Output, call_role: Role | None) -> int:
    from ...agent import Turn
    from ..service.home import open_threads
    from .answers import OptionAnswers, check_resumable, resume_turn, would_only_wait
    from .turn_run import report, resume_command

    name = agent.thread(options.thread).scope.thread or ""
    # Read before the agent opens, so that printing the pauses needs no model.
    async with open_threads(agent.storage, agent.workspace) as threads:
        thread = None if threads is None else threads.thread(name)
        state = check_resumable(None if thread is None else await thread.state(), agent.workspace, name)
        assert thread is not None, "it has a state"
        option_answers = await OptionAnswers.of(thread)
    answers = dict(option_answers.answers(options.answer or (), options.approve or (), options.reject or ()))
    if options.approve_all:
        answers |= option_answers.approve_rest()
    if not answers and would_only_wait(state, option_answers.open):
        waiting = Turn(id=state.turn_id, thread=options.thread, status="paused", pauses=option_answers.open)
        return report(waiting, output, resume_command(options, options.thread), options)
    return await resume_turn(agent, options, output, options.thread, answers, call_role)
