"""The slash commands: the table, and what each does to the session. None of it goes to a model."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ....core import STORED_TIERS, Tier, check_id
from ....core.errors import InvalidArgument, UnknownTier
from ....role_resolution import Role
from .._attachments import attachment, named
from .._messages import author_text, message_text
from .._output import table
from .._roles import roles_table
from .._sources import text as text_of
from .waiting import STATUS_TEXTS

if TYPE_CHECKING:
    from ....profiles import ProfileEntry
    from .session import Session

# A role that is set in a chat lasts as long as the chat: a person would not notice that it expired.
_ROLE_SECONDS: Final = 100 * 365 * 86400.0
_MESSAGES: Final = 10  # that /history shows
_MAX_MESSAGES: Final = 1000
_HELP_WIDTH: Final = 20
_STATES: Final = {
    "active": "active",
    "blocked": "overruled",
    "not_applicable": "not for this",
    "absent": "-",
    "unavailable": "source is down",
}

Run = Callable[["Session", str], Awaitable[str | None]]


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


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        name: With its slash.
        takes: What can follow the name, for people; empty where nothing can.
        help: What it does, in one line.
        run: Gets the session and what follows the name. It returns what to show, or None where a turn has shown it.
    """

    name: str
    takes: str
    help: str
    run: Run


COMMANDS: Final[dict[str, Command]] = {}
"""All commands by name, in the order of `/help`."""


def _command(name: str, takes: str = "", *, help: str) -> Callable[[Run], Run]:
    def add(run: Run) -> Run:
        COMMANDS[name] = Command(name, takes, help, run)
        return run

    return add


def parse(text: str, *, trusted: bool = True) -> str | tuple[Command, str]:
    """Tell a message from a command.

    Args:
        text: What was typed, not blank.
        trusted: Whether a person typed it; else it can name no file.

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
    if not trusted:
        _refuse_files(name, given)
    return command, given


def _refuse_files(name: str, given: str) -> None:
    """A program that pipes lines in could pass on what a stranger wrote, so its commands name no files."""
    remedy = ""
    if name == "/attach" and given not in ("", "off") and isinstance(attachment(given), Path):
        remedy = "give the chat --attach FILE"
    elif name == "/role" and given.startswith("@") and not given.startswith("@@"):
        remedy = "give the chat --role @FILE"
    if remedy:
        raise InvalidArgument(f"{name} takes a file at a terminal only", remedy=remedy)


def may_be_kept(text: str) -> bool:
    """Whether the history of input can keep `text`: no role, and nothing that may be a mistyped one (R7)."""
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


# --- roles ------------------------------------------------------------------------------------------------------------


@_command("/role", "TEXT|@FILE|off", help="how to go about this thread; alone, show it")
async def _role(session: Session, given: str) -> str:
    thread = await session.thread()
    if not given:
        return _roles_text(session.thread_id, thread.role.get(), session.role)
    if given == "-":
        raise InvalidArgument("/role reads no standard input", remedy="write /role TEXT or /role @FILE")
    if given == "off":
        told = f"the role of the thread {session.thread_id!r} {'is off' if thread.role.clear() else 'was not set'}"
    else:
        role = Role("chat", text_of("/role", given))
        thread.role.set(role, ttl=_ROLE_SECONDS)
        told = f"role of the thread {session.thread_id!r} set, {len(role.content)} characters; it holds until /role off"
    call, session.role = session.role, None  # what is said last counts
    return told if call is None else f"{told}; the call role of --role is off"


def _roles_text(thread_id: str, of_thread: Role | None, of_calls: Role | None) -> str:
    if of_thread is None and of_calls is None:
        return f"the thread {thread_id!r} has no role of its own; /role TEXT or /role @FILE sets one"
    return "\n\n".join(
        f"{which}, {len(role.content)} characters, until /role off or the end of the chat:\n\n{role.content}"
        for which, role in ((f"role of the thread {thread_id!r}", of_thread), ("call role of --role", of_calls))
        if role is not None
    )


@_command("/roles", help="the stored roles of workspace, account and channel")
async def _roles(session: Session, _: str) -> str:
    agent, options = await session.agent(), session.options
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


@_command("/why", help="which roles are active, in what order")
async def _why(session: Session, _: str) -> str:
    agent, thread = await session.agent(), await session.thread()
    explanation = await agent.explain_role(thread, role=session.role)
    rows = [
        (tier.tier, _STATES[tier.state], tier.name or "", str(tier.length) if tier.length else "")
        for tier in explanation.tiers
    ]
    if not any(tier.state == "active" for tier in explanation.tiers):
        told = "No role is active: the next message goes without any."
    elif explanation.policy == "block":
        told = "The last of those that are set is active alone."
    else:
        told = "Where active roles conflict, the later in this list wins."
    return f"{table(('TIER', 'STATE', 'NAME', 'CHARACTERS'), rows, widths=(9, 14, 40))}\n\n{told}"


@_command("/profiles", help="what an agent can start up with, and which this one did")
async def _profiles(session: Session, _: str) -> str:
    chosen = (await session.agent()).profile.name
    from .._profiles import open_profiles  # few ask for it

    rows = [
        ("*" if entry.name == chosen else "", entry.name, entry.level, _profile_text(entry))
        for entry in open_profiles().entries()
        if entry.used
    ]
    shown = table(("", "PROFILE", "FROM", "DESCRIPTION"), rows, widths=(1, 24, 8))
    return f"{shown}\n\nThe one with * was chosen at the start, with --profile, and stays."


def _profile_text(entry: ProfileEntry) -> str:
    if entry.problems:
        return f"cannot be used: {entry.problems[0].problem}"
    return "" if entry.profile is None else entry.profile.description


# --- messages and threads ---------------------------------------------------------------------------------------------


@_command("/attach", "FILE|URL|off", help="what goes with the next message; alone, show it")
async def _attach(session: Session, given: str) -> str:
    if given == "off":
        session.attached = ()
    elif given:
        source = attachment(given, "/attach")
        # A file is read now, so that what is wrong with it is reported now.
        session.attached += (await (await session.agent()).attachments.add(source),)
    if not session.attached:
        return "nothing goes with the next message; /attach FILE|URL adds something"
    names = ", ".join(named(source) for source in session.attached)
    return f"with the next message goes: {names}; /attach off takes it away"


@_command("/history", "[N]", help=f"the last N messages of the thread ({_MESSAGES})")
async def _history(session: Session, given: str) -> str:
    limit = _MESSAGES
    if given:
        limit = int(given) if given.isdecimal() and given.isascii() and len(given) < 6 else 0
        if not 1 <= limit <= _MAX_MESSAGES:
            raise InvalidArgument("/history takes a number of messages", remedy=f"give 1 to {_MAX_MESSAGES}")
    messages = await (await session.thread()).history(limit=limit)
    if not messages:
        return f"nothing was said on the thread {session.thread_id!r}"
    return "\n\n".join(f"{author_text(message)}: {message_text(message)}" for message in messages)


@_command("/thread", "[NAME]", help="go to another thread; alone, say which")
async def _thread(session: Session, given: str) -> str:
    if given:
        session.thread_id = check_id("/thread", given)
    return f"on the thread {session.thread_id!r} of the workspace {(await session.agent()).workspace!r}"


@_command("/fork", "[NAME]", help="go on from here on a thread of its own")
async def _fork(session: Session, given: str) -> str:
    fork = await (await session.thread()).fork(to=check_id("/fork", given) if given else None)
    origin, session.thread_id = session.thread_id, fork.scope.thread or ""
    return f"on the thread {session.thread_id!r}, which goes on from where {origin!r} stands"


@_command("/edit", "TEXT", help="edit your last message; a fork keeps the original")
async def _edit(session: Session, given: str) -> None:
    if not given:
        raise InvalidArgument("/edit takes what to say instead", remedy="write /edit TEXT")
    await session.edit(given)


# --- the turn ---------------------------------------------------------------------------------------------------------


@_command("/pauses", help="what the thread's turn waits for")
async def _pauses(session: Session, _: str) -> str:
    state = await session.look()
    if session.waiting is not None:
        return session.waiting.describe()
    return STATUS_TEXTS.get(state.status if state else "", f"nothing waits on the thread {session.thread_id!r}")


@_command("/resume", "[refresh]", help="resume the turn; refresh: with the roles of now")
async def _resume(session: Session, given: str) -> None:
    if given not in ("", "refresh"):
        raise InvalidArgument("/resume takes nothing or 'refresh'", remedy="answers are lines without a slash")
    await session.resume("refresh" if given else "fail")


@_command("/cancel", help="end the turn that waits or was stopped")
async def _cancel(session: Session, _: str) -> str:
    cancelled = await (await session.thread()).cancel()
    await session.look()
    if not cancelled:
        return f"no turn waits or runs on the thread {session.thread_id!r}"
    return f"the turn on the thread {session.thread_id!r} is cancelled"


# --- the chat ---------------------------------------------------------------------------------------------------------


@_command("/help", help="this list")
async def _help(session: Session, _: str) -> str:
    rows = [(f"{command.name} {command.takes}".strip(), command.help) for command in COMMANDS.values()]
    rows += [
        ("//TEXT", "say a text that begins with a slash"),
        ("TEXT", "a message; an answer, where one is awaited"),
        ("Alt-Enter", "another line, as does Enter after a final backslash"),
        ("Ctrl-C", "cancel the answer that is under way, or clear the input"),
        ("Ctrl-D", "leave, as /quit does"),
    ]
    return "\n".join(f"{left.ljust(_HELP_WIDTH)}  {right}" for left, right in rows)


@_command("/later", help="leave; what waits can be answered another day")
@_command("/quit", help="leave")
async def _quit(session: Session, _: str) -> None:
    raise Leave


__all__ = ["COMMANDS", "Command", "Leave", "UnknownCommand", "may_be_kept", "parse"]
