"""The command `ask`: one message, one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .command import Work, command
from .options import WHERE, Events, SpeakerOptions, TurnModels, Unattended
from .output import Output

if TYPE_CHECKING:
    from ...agent import Turn

app = typer.Typer()


@app.command(rich_help_panel="Turns")
@command
def ask(
    options: SpeakerOptions,
    output: Output,
    thread: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="The conversation to continue. Default: a new one for each call.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="[TEXT]",
            help="The message. Data that is piped to the command follows it after a blank line. Without TEXT, or with "
            "-, the command reads the message from standard input.",
        ),
    ] = None,
    attach: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE|URL", help="An image or a file to send with the message. Repeatable."),
    ] = None,
    turn_model: TurnModels = None,
    unattended: Unattended = None,
    events: Events = False,
) -> Work:
    """Send a message to the agent and print its answer.

    At a terminal, the answer appears while it is written. Each message starts a new thread. To continue a conversation,
    name its thread with --thread.

    [bold]Examples[/bold]

      worldagent ask 'What is the capital of France?' --thread trip

      worldagent ask 'And of Spain?' --thread trip --role 'Answer in one word.'

      git diff | worldagent ask 'Review this change:' --role @reviewer.md --lm openai/gpt-4o

      worldagent ask 'What is on it?' --attach photo.png --lm openai/gpt-4o
    """
    from ...core import new_id
    from .messages import attachments
    from .session import open_agent, thread_of
    from .sources import message, one_reader, role
    from .turn import one_form, one_turn

    one_form(options.json, events)
    one_reader(options, "TEXT", "-" if text is None else text)
    said, call_role = message(options, text, output), role(options.role)
    how: dict[str, Any] = {"attachments": attachments(attach), "model": turn_model or None, "unattended": unattended}
    agent = open_agent(options, output)
    # A message must not depend on how the previous one ended, so without --thread it gets a new thread.
    thread_id = new_id("ask") if thread is None else thread
    conversation = thread_of(agent, options, thread_id)

    async def begin() -> Turn:
        async with conversation.stream(said, role=call_role, **how) as stream:
            async for event in stream:
                output.event(event)
        return stream.turn

    return one_turn(agent, options, output, thread_id, begin)
