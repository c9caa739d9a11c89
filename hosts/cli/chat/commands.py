"""What begins with a slash: the table of commands, and what each does to the talk. None of it goes to a model."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from ....core import STORED_TIERS, Tier, check_id
from ....core.errors import InvalidArgument, UnknownTier
from ....role_resolution import Role
from .._attachments import attachment, named
from .._messages import author_text, message_text
from .._output import table
from .._roles import roles_table
from .._sources import text as text_of
from .waiting import standing

if TYPE_CHECKING:
    from ....profiles import ProfileEntry
    from ....role_resolution import RoleExplanation
    from .session import Talk

# A role that is set at a chat holds as long as the chat: one that went away by itself would not be noticed.
_TTL: Final = 100 * 365 * 86400.0  # seconds
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


@dataclass(frozen=True)
class GoOn:
    """What a command gives where the turn is to go on.

    Attributes:
        on_role_change: See `Thread.resume`.
    """

    on_role_change: Literal["fail", "refresh"] = "fail"


@dataclass(frozen=True)
class Instead:
    """What a command gives where the last message is to be said otherwise.

    Attributes:
        text: What is said instead.
    """

    text: str


class UnknownCommand(InvalidArgument):
    """No command has this name."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command.

    Attributes:
        name: With its slash.
        takes: What may follow the name, for people; empty where nothing may.
        help: What it does, in one line.
        run: Gets the talk and what follows the name, and gives what to show, or that a turn is to go on or begin.
    """

    name: str
    takes: str = ""
    help: str
    run: Callable[[Talk, str], Awaitable[str | GoOn | Instead]]


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
    if not trusted and name == "/attach" and given not in ("", "off") and isinstance(attachment(given), Path):
        raise InvalidArgument("/attach takes a file at a terminal only", remedy="give the chat --attach FILE")
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
    thread = await talk.thread()
    if not given:
        return _role_told(talk.thread_id, thread.role.get(), talk.role)
    if given == "-":
        raise InvalidArgument("/role reads no standard input", remedy="write /role TEXT or /role @FILE")
    if given == "off":
        told = f"the role of the thread {talk.thread_id!r} {'is off' if thread.role.clear() else 'was not set'}"
    else:
        role = Role("chat", text_of("/role", given))
        thread.role.set(role, ttl=_TTL)
        told = f"role of the thread {talk.thread_id!r} set, {len(role.content)} characters; it holds until /role off"
    call, talk.role = talk.role, None  # what is said last counts
    return told if call is None else f"{told}; the call role of --role is off"


def _role_told(thread_id: str, of_thread: Role | None, of_calls: Role | None) -> str:
    if of_thread is None and of_calls is None:
        return f"the thread {thread_id!r} has no role of its own; /role TEXT or /role @FILE sets one"
    named = ((f"role of the thread {thread_id!r}", of_thread), ("call role of --role", of_calls))
    return "\n\n".join(
        f"{which}, {len(role.content)} characters, until /role off or the end of the chat:\n\n{role.content}"
        for which, role in named
        if role is not None
    )


async def _roles(talk: Talk, _: str) -> str:
    agent, options = await talk.agent(), talk.options
    named = {tier: getattr(options, tier.value) for tier in STORED_TIERS} | {Tier.WORKSPACE: agent.workspace}
    scope_ids: dict[Tier, str] = {tier: scope_id for tier, scope_id in named.items() if scope_id is not None}
    try:
        found = await agent.roles.list(scope_ids)
    except UnknownTier:  # not every host offers channels
        scope_ids.pop(Tier.CHANNEL, None)
        found = await agent.roles.list(scope_ids)
    rows = [(tier, scope_ids[tier], found[tier]) for tier in STORED_TIERS if tier in found]
    scopes = ", ".join(f"{tier} {scope_id!r}" for tier, scope_id in scope_ids.items())
    return roles_table(rows) if rows else f"no role is stored for {scopes}"


async def _profiles(talk: Talk, _: str) -> str:
    await talk.agent()
    from .._profiles import open_profiles  # few ask for it

    rows = [
        ("*" if entry.name == talk.profile else "", entry.name, entry.level, _about(entry))
        for entry in open_profiles().entries()
        if entry.used
    ]
    shown = table(("", "PROFILE", "FROM", "DESCRIPTION"), rows, widths=(1, 24, 8))
    return f"{shown}\n\nThe one with * was chosen at the start, with --profile, and stays."


def _about(entry: ProfileEntry) -> str:
    if entry.problems:
        return f"cannot be used: {entry.problems[0].problem}"
    return "" if entry.profile is None else entry.profile.description


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
    return "\n\n".join(f"{author_text(message)}: {message_text(message)}" for message in messages)


async def _attach(talk: Talk, given: str) -> str:
    if given == "off":
        talk.attached = ()
    elif given:
        source = attachment(given, "/attach")
        agent = await talk.agent()
        # A file is read now, so that what is wrong with it is told now.
        talk.attached += (await agent.attachments.add(source),)
    if not talk.attached:
        return "nothing goes with the next message; /attach FILE|URL adds something"
    names = ", ".join(named(source) for source in talk.attached)
    return f"with the next message goes: {names}; /attach off takes it away"


async def _thread(talk: Talk, given: str) -> str:
    if given:
        talk.thread_id = check_id("/thread", given)
    return f"on the thread {talk.thread_id!r} of the workspace {(await talk.agent()).workspace!r}"


async def _fork(talk: Talk, given: str) -> str:
    fork = await (await talk.thread()).fork(to=check_id("/fork", given) if given else None)
    was, talk.thread_id = talk.thread_id, fork.scope.thread or ""
    return f"on the thread {talk.thread_id!r}, which goes on from where {was!r} stands"


async def _edit(talk: Talk, given: str) -> Instead:
    if not given:
        raise InvalidArgument("/edit takes what to say instead", remedy="write /edit TEXT")
    return Instead(given)


async def _pauses(talk: Talk, _: str) -> str:
    state = await talk.look()
    if talk.waiting is not None:
        return talk.waiting.told()
    return standing(state) or f"nothing waits on the thread {talk.thread_id!r}"


async def _resume(talk: Talk, given: str) -> GoOn:
    match given:
        case "":
            return GoOn()
        case "refresh":
            return GoOn("refresh")
        case _:
            raise InvalidArgument("/resume takes nothing or 'refresh'", remedy="answers are lines without a slash")


async def _cancel(talk: Talk, _: str) -> str:
    cancelled = await (await talk.thread()).cancel()
    await talk.look()
    if not cancelled:
        return f"no turn waits or runs on the thread {talk.thread_id!r}"
    return f"the turn on the thread {talk.thread_id!r} is cancelled"


async def _help(talk: Talk, _: str) -> str:
    rows = [(f"{command.name} {command.takes}".strip(), command.help) for command in COMMANDS.values()]
    rows += [("//TEXT", "say a text that begins with a slash"), ("TEXT", "a message; an answer, where one is awaited")]
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
    Command(name="/role", takes="TEXT|@FILE|off", help="how to go about this thread; alone, show it", run=_role),
    Command(name="/roles", help="the stored roles of workspace, account and channel", run=_roles),
    Command(name="/profiles", help="what an agent can start up with, and which this one did", run=_profiles),
    Command(name="/why", help="which roles are active, in what order", run=_why),
    Command(name="/attach", takes="FILE|URL|off", help="what goes with the next message; alone, show it", run=_attach),
    Command(name="/history", takes="[N]", help=f"the last N messages of the thread ({_MESSAGES})", run=_history),
    Command(name="/thread", takes="[NAME]", help="go to another thread; alone, say which", run=_thread),
    Command(name="/fork", takes="[NAME]", help="go on from here on a thread of its own", run=_fork),
    Command(name="/edit", takes="TEXT", help="say your last message otherwise; what was is kept", run=_edit),
    Command(name="/pauses", help="what the thread's turn waits for", run=_pauses),
    Command(name="/resume", takes="[refresh]", help="go on with the turn; refresh: with the roles of now", run=_resume),
    Command(name="/cancel", help="end the turn that waits or was stopped", run=_cancel),
    Command(name="/help", help="this list", run=_help),
    Command(name="/later", help="leave; what waits can be answered another day", run=_quit),
    Command(name="/quit", help="leave", run=_quit),
)
COMMANDS: Final = {command.name: command for command in _ALL}

__all__ = ["COMMANDS", "Command", "GoOn", "Instead", "Leave", "UnknownCommand", "may_be_kept", "parse"]
