"""What begins with a slash: the table of commands, and what each does to the talk. None of it goes to a model."""

from __future__ import annotations

import difflib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ....core import STORED_TIERS, Tier, check_id
from ....core.errors import InvalidArgument, UnknownTier
from ....role_resolution import Role
from .._output import table
from .._roles import roles_table
from .._sources import text as text_of

if TYPE_CHECKING:
    from ....memory import Message
    from ....role_resolution import RoleExplanation
    from ._talk import Talk

_MESSAGES: Final = 10  # that /history shows
_MOST: Final = 1000
_STATES: Final = {
    "active": "active",
    "blocked": "overruled",
    "not_applicable": "not for this",
    "absent": "-",
    "unavailable": "source is down",
}


class Leave(Exception):
    """The chat ends.

    Args:
        code: The exit code.
    """

    def __init__(self, code: int = 0) -> None:
        super().__init__()
        self.code = code


class UnknownCommand(InvalidArgument):
    """No command has this name."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command.

    Attributes:
        name: With its slash.
        takes: What may follow the name, for people; empty where nothing may.
        help: What it does, in one line.
        run: Gets the talk and what follows the name, and gives what to show.
    """

    name: str
    takes: str = ""
    help: str
    run: Callable[[Talk, str], Awaitable[str]]


def parse(text: str, *, trusted: bool = True) -> str | tuple[Command, str]:
    """Tell a message from a command.

    Args:
        text: What was typed, not blank.
        trusted: Whether a person typed it; else it may name no file.

    Returns:
        The message, or the command and what follows its name.

    Raises:
        UnknownCommand: It begins with a slash and is no command; the text names those that are near.
        InvalidArgument: The command takes nothing, or no file here.
    """
    said = text.strip()
    if said.startswith("//"):
        return said[1:]
    if not said.startswith("/"):
        return text
    name, given = _split(said)
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, n=2, cutoff=0.6)
        nearest = f"the nearest is {' or '.join(near)}; " if near else ""
        raise UnknownCommand(
            f"there is no command {name[:20]!r}, and nothing was sent",
            remedy=f"{nearest}/help lists all, and // begins a message that begins with a slash",
        )
    if given and not command.takes:
        raise InvalidArgument(f"{name} takes nothing", remedy=f"write {name} alone")
    if not trusted and name == "/role" and given.startswith("@") and not given.startswith("@@"):
        raise InvalidArgument("/role takes a file at a terminal only", remedy="give the chat --role @FILE")
    return command, given


def may_be_kept(text: str) -> bool:
    """Whether the history of input may keep `text`: no role, and nothing that may be a mistyped one (R7)."""
    said = text.strip()
    if not said.startswith("/") or said.startswith("//"):
        return True
    name, given = _split(said)
    command = COMMANDS.get(name)
    if command is None or name == "/role":
        return False
    return len(given.split()) <= (1 if command.takes else 0)


def _split(said: str) -> tuple[str, str]:
    name, *rest = said.split(maxsplit=1)
    return name, rest[0] if rest else ""


async def _role(talk: Talk, given: str) -> str:
    if not given:
        return _role_told(talk.role)
    if given == "off":
        had, talk.role = talk.role, None
        return "the call role is off" if had is not None else "no call role was set"
    if given == "-":
        raise InvalidArgument("/role reads no standard input", remedy="write /role TEXT or /role @FILE")
    talk.role = Role("chat", text_of("/role", given))
    return f"call role set, {len(talk.role.content)} characters; it goes with every message until /role off"


def _role_told(role: Role | None) -> str:
    if role is None:
        return "no call role is set; /role TEXT or /role @FILE sets one"
    return f"call role, {len(role.content)} characters, goes with every message until /role off:\n\n{role.content}"


async def _roles(talk: Talk, _: str) -> str:
    agent, options = await talk.agent(), talk.options
    named = {tier: getattr(options, tier.value) for tier in STORED_TIERS}
    scope_ids: dict[Tier, str] = {tier: scope_id for tier, scope_id in named.items() if scope_id is not None}
    try:
        found = await agent.roles.list(scope_ids)
    except UnknownTier:  # not every host offers channels
        scope_ids.pop(Tier.CHANNEL, None)
        found = await agent.roles.list(scope_ids)
    rows = [(tier, scope_ids[tier], found[tier]) for tier in STORED_TIERS if tier in found]
    scopes = ", ".join(f"{tier} {scope_id!r}" for tier, scope_id in scope_ids.items())
    return roles_table(rows) if rows else f"no role is stored for {scopes}"


async def _why(talk: Talk, _: str) -> str:
    agent, thread = await talk.agent(), await talk.thread()
    return _explained(await agent.explain_role(thread, role=talk.role))


def _explained(explanation: RoleExplanation) -> str:
    rows = [
        (tier.tier, _STATES[tier.state], tier.name or "", str(tier.length) if tier.length else "")
        for tier in explanation.tiers
    ]
    shown = table(("TIER", "STATE", "NAME", "CHARACTERS"), rows, widths=(9, 14, 40))
    if any(tier.state == "active" for tier in explanation.tiers):
        told = "Where active roles conflict, the later in this list wins."
        if explanation.policy == "block":
            told = "The last of those that are set is active alone."
    else:
        told = "No role is active: the next message goes without any."
    return f"{shown}\n\n{told}"


async def _history(talk: Talk, given: str) -> str:
    limit = _MESSAGES
    if given:
        limit = int(given) if given.isdecimal() and given.isascii() and len(given) < 6 else 0
        if not 1 <= limit <= _MOST:
            raise InvalidArgument("/history takes a number of messages", remedy=f"give 1 to {_MOST}")
    messages = await (await talk.thread()).history(limit=limit)
    if not messages:
        return f"nothing was said on the thread {talk.thread_id!r}"
    return "\n\n".join(f"{message.author}: {_said(message)}" for message in messages)


def _said(message: Message) -> str:
    body: Mapping[str, Any] = message.body
    text = body.get("text")
    if isinstance(text, str) and text.strip():
        return text.strip()
    return f"[{message.kind}] {json.dumps(dict(body), ensure_ascii=False)}"


async def _thread(talk: Talk, given: str) -> str:
    if given:
        talk.thread_id = check_id("/thread", given)
    return f"on the thread {talk.thread_id!r} of the workspace {talk.options.workspace!r}"


async def _help(talk: Talk, _: str) -> str:
    rows = [(f"{command.name} {command.takes}".strip(), command.help) for command in COMMANDS.values()]
    rows += [("//TEXT", "say a text that begins with a slash")]
    keys = [
        ("Alt-Enter", "another line, as does Enter after a final backslash"),
        ("Ctrl-C", "cancel the answer that is under way, or clear the input"),
        ("Ctrl-D", "leave, as /quit does"),
    ]
    return "\n".join(f"{left.ljust(_HELP_WIDTH)}  {right}" for left, right in [*rows, *keys])


async def _quit(talk: Talk, _: str) -> str:
    raise Leave


_HELP_WIDTH: Final = 20
_ALL: Final = (
    Command(name="/role", takes="TEXT|@FILE|off", help="how to go about every message; alone, show it", run=_role),
    Command(name="/roles", help="the stored roles of workspace, account and channel", run=_roles),
    Command(name="/why", help="which roles are active, in what order", run=_why),
    Command(name="/history", takes="[N]", help=f"the last N messages of the thread ({_MESSAGES})", run=_history),
    Command(name="/thread", takes="[NAME]", help="go to another thread; alone, say which", run=_thread),
    Command(name="/help", help="this list", run=_help),
    Command(name="/quit", help="leave", run=_quit),
)
COMMANDS: Final = {command.name: command for command in _ALL}

__all__ = ["COMMANDS", "Command", "Leave", "UnknownCommand", "may_be_kept", "parse"]
