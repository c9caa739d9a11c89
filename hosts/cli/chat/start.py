"""From options to a chat: what it reads from and what it shows on. The rest is `loop`'s."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Coroutine
from typing import Any

from ....core import check_id
from .._apps import check_app
from .._hosts import check_hosts
from .._options import ChatOptions
from .._output import Output
from .._session import run
from .._sources import one_reader, role
from .lines import LineInput, Printer
from .loop import Chat
from .session import Talk


def chat(options: ChatOptions) -> int:
    """Run the command and return its exit code."""
    output = Output.of(json=options.json, verbose=options.verbose)

    def begin() -> Coroutine[Any, Any, int | None]:
        one_reader(options, "chat", "-")
        check_app(options)
        check_hosts(options)
        for name in ("workspace", "thread", "account", "channel"):
            if (given := getattr(options, name)) is not None:
                check_id(f"--{name}", given)
        return _chat(options, Talk(options, role(options.role)))

    return run(output, begin)


async def _chat(options: ChatOptions, talk: Talk) -> int:
    """Made inside the loop: what reads the terminal belongs to it."""
    if options.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return await Chat(talk, LineInput(), Printer(options)).run()
    from .drawing import Screen, unechoed

    if not logging.root.handlers:
        # Python shows warnings that nobody handles on stderr, which is where the person types.
        logging.root.addHandler(logging.NullHandler())
    if os.environ.get("TERM", "") in ("", "dumb", "unknown"):
        return await Chat(talk, LineInput(prompting=True), Screen()).run()
    from .prompt import PromptInput

    with unechoed(lines=False):
        return await Chat(talk, PromptInput(talk), Screen()).run()


__all__ = ["chat"]
