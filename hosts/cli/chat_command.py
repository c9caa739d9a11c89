"""The command `chat`: a conversation at a terminal, or line by line without one. The code is in `chat/`."""

from __future__ import annotations

import typer

from .command import command
from .options import ChatOptions

app = typer.Typer()


@app.command(rich_help_panel="Turns")
@command
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
    return open_chat(options)


def open_chat(options: ChatOptions) -> int:
    """Run the chat and return its exit code."""
    from .chat import chat as run_chat

    return run_chat(options)
