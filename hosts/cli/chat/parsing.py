"""Separates messages from slash commands, and decides what the history can keep. `commands` fills the table."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ....core.errors import InvalidArgument
from ..sources import attachment

if TYPE_CHECKING:
    from .session import Session

_FILE: Final = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')  # @FILE or @"FILE"
_AFTER_FILE: Final = ".,:;!?)"  # characters that end a sentence, not a file name

Run = Callable[["Session", str], Awaitable[str | None]]


class ChatEnded(Exception):
    """Raised to end the chat.

    Args:
        code: The exit code.
    """

    def __init__(self, code: int = 0) -> None:
        super().__init__()
        self.code = code


class UnknownCommand(InvalidArgument):
    """No command has this name."""


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        name: With its slash.
        takes: What can follow the name, for people; empty if nothing can.
        help: What it does, in one line.
        run: Called with the session and the text after the name. It returns the text to show, or None if a turn has
            shown it.
    """

    name: str
    takes: str
    help: str
    run: Run


COMMANDS: Final[dict[str, Command]] = {}
"""All commands by name, in the order of `/help`."""


def command(name: str, takes: str = "", *, help: str) -> Callable[[Run], Run]:
    """Put a coroutine function into the table, as the command `name`; see `Command`."""

    def add(run: Run) -> Run:
        COMMANDS[name] = Command(name, takes, help, run)
        return run

    return add


def parse(text: str, *, trusted: bool = True) -> str | tuple[Command, str]:
    """Tell a message from a command.

    Args:
        text: What was typed, not blank.
        trusted: Whether a person typed it. Other texts cannot name files.

    Returns:
        The message, or the command and what follows its name.

    Raises:
        UnknownCommand: The text begins with a slash and is not a command; the error names similar commands.
        InvalidArgument: The command takes no argument, or cannot take a file here.
    """
    said = text.strip()
    if said.startswith("//"):
        return said[1:]
    if not said.startswith("/"):
        return text
    name, given = _split(said)
    found = COMMANDS.get(name)
    if found is None:
        near = difflib.get_close_matches(name, COMMANDS, n=2, cutoff=0.6)
        nearest = f"the nearest is {' or '.join(near)}; " if near else ""
        raise UnknownCommand(
            f"the command {name[:20]!r} does not exist, and nothing was sent",
            remedy=f"{nearest}/help lists all; write // to begin a message with a slash",
        )
    if given and not found.takes:
        raise InvalidArgument(f"{name} takes no argument", remedy=f"write {name} alone")
    if not trusted:
        _refuse_files(name, given)
    return found, given


def _refuse_files(name: str, given: str) -> None:
    """Refuse files in commands that a program pipes in, since it could pass on what a stranger wrote."""
    remedy = ""
    if name == "/attach" and given not in ("", "off") and isinstance(attachment(given), Path):
        remedy = "start the chat with --attach FILE"
    elif name == "/role" and given.startswith("@") and not given.startswith("@@"):
        remedy = "start the chat with --role @FILE"
    elif name == "/export" and given:
        remedy = "use `worldagent threads export`"
    if remedy:
        raise InvalidArgument(f"{name} takes a file only at a terminal", remedy=remedy)


def files_named(text: str) -> tuple[Path, ...]:
    """The files that a message names as `@FILE` or `@"FILE"`. Other words are plain text."""
    found: dict[Path, None] = {}
    for quoted, word in _FILE.findall(text):
        for name in (quoted or word, word.rstrip(_AFTER_FILE)):
            path = os.path.expanduser(name)
            if name and os.path.isfile(path):
                found[Path(path)] = None
                break
    return tuple(found)


def may_be_kept(text: str) -> bool:
    """Whether the history of input can keep `text`. It never keeps a role, or what can be a mistyped one (R7)."""
    said = text.strip()
    if not said.startswith("/") or said.startswith("//"):
        return True
    name, given = _split(said)
    found = COMMANDS.get(name)
    if found is None or name == "/role":
        return False
    return len(given.split()) <= (1 if found.takes else 0)


def _split(said: str) -> tuple[str, str]:
    name, *rest = said.split(maxsplit=1)
    return name, rest[0] if rest else ""


__all__ = ["COMMANDS", "ChatEnded", "Command", "UnknownCommand", "command", "files_named", "may_be_kept", "parse"]
