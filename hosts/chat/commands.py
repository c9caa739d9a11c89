"""The slash commands: how they differ from messages, what each does, and what it shows. No model sees them."""

from __future__ import annotations

import difflib
import os
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...core import STORED_TIERS, Tier, check_id
from ...core.errors import InvalidArgument, NameTaken, UnknownTier
from ...core.files import storage_errors
from ...role_resolution import Role
from ..cli.output import attachment_name, author_text, counted, message_text, table, time_text, tokens_text
from ..cli.roles import roles_table
from ..cli.sources import attachment, expanded
from ..cli.sources import text as text_of
from ..service.pauses import one_line, printable
from .session import STATUS_TEXTS

if TYPE_CHECKING:
    from .session import Session

_FILE: Final = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')  # @FILE or @"FILE"
_AFTER_FILE: Final = ".,:;!?)"  # characters that end a sentence, not a file name

MAX_KEPT_CHARACTERS: Final = 10_000
"""The longest text that the history of input keeps."""

Run = Callable[["Session", str], Awaitable[str | None]]


class ChatEnded(Exception):
    """Raised to end the chat.

    Args:
        code: The exit code.
    """

    def __init__(self, code: int = 0) -> None:
        super().__init__()
        self.code = code


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        name: With its slash.
        takes: What can follow the name, for people; empty if nothing can.
        help: What it does, in one line.
        run: Called with the session and the text after the name. It returns the text to show, or None if a turn has
            shown it.
        beside: Whether it can be used while a turn runs.
    """

    name: str
    takes: str
    help: str
    run: Run
    beside: bool = False


COMMANDS: Final[dict[str, Command]] = {}
"""All commands by name, in the order of `/help`."""


def command(name: str, takes: str = "", *, help: str, beside: bool = False) -> Callable[[Run], Run]:
    """Put a coroutine function into the table, as the command `name`; see `Command`."""

    def add(run: Run) -> Run:
        COMMANDS[name] = Command(name, takes, help, run, beside)
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
        InvalidArgument: The text begins with a slash and is not a command; the error names similar commands. Or the
            command takes no argument, or cannot take a file here.
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
        raise InvalidArgument(
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
    if len(text) > MAX_KEPT_CHARACTERS:
        return False
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


# A role that is set in a chat lasts as long as the chat: a person would not notice that it expired.
_ROLE_SECONDS: Final = 100 * 365 * 86400.0
_MESSAGES: Final = 10  # that /history shows
_MAX_MESSAGES: Final = 1000
_THREADS: Final = 20  # that /threads lists
_HELP_WIDTH: Final = 21
_STATES: Final = {
    "active": "active",
    "blocked": "overruled",
    "not_applicable": "does not apply",
    "absent": "-",
    "unavailable": "source is down",
}

# --- roles ------------------------------------------------------------------------------------------------------------


@command("/role", "TEXT|@FILE|off", help="set the role of this thread; alone, show it")
async def _role(session: Session, given: str) -> str:
    thread = session.thread
    if not given:
        roles = (
            (f"role of the thread {session.thread_id!r}", thread.role.get()),
            ("call role of --role", session.role),
        )
        texts = [
            f"{which}, {len(role.content)} characters, until /role off or the end of the chat:\n\n{role.content}"
            for which, role in roles
            if role is not None
        ]
        none = f"the thread {session.thread_id!r} has no role; /role TEXT or /role @FILE sets one"
        return "\n\n".join(texts) or none
    if given == "-":
        raise InvalidArgument("/role cannot read standard input", remedy="write /role TEXT or /role @FILE")
    if given == "off":
        shown = f"the role of the thread {session.thread_id!r} {'is off' if thread.role.clear() else 'was not set'}"
    else:
        role = Role("chat", text_of("/role", given))
        thread.role.set(role, ttl=_ROLE_SECONDS)
        shown = (
            f"role of the thread {session.thread_id!r} set, {len(role.content)} characters; it holds until /role off"
        )
    call, session.role = session.role, None  # the role that was set last counts
    return shown if call is None else f"{shown}; the call role of --role is off"


@command("/roles", help="the stored roles of workspace, account and channel")
async def _roles(session: Session, _: str) -> str:
    agent, options = session.agent, session.options
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


@command("/why", help="which roles are active, in what order")
async def _why(session: Session, _: str) -> str:
    agent, thread = session.agent, session.thread
    explanation = await agent.explain_role(thread, role=session.role)
    rows = [
        (tier.tier, _STATES[tier.state], tier.name or "", str(tier.length) if tier.length else "")
        for tier in explanation.tiers
    ]
    if not any(tier.state == "active" for tier in explanation.tiers):
        shown = "No role is active. The next message is sent without one."
    elif explanation.policy == "block":
        shown = "Only the last role that is set is active."
    else:
        shown = "Where active roles conflict, the later in this list wins."
    return f"{table(('TIER', 'STATE', 'NAME', 'CHARACTERS'), rows, widths=(9, 14, 40))}\n\n{shown}"


@command("/profiles", help="the profiles that an agent can use, and the one in use")
async def _profiles(session: Session, _: str) -> str:
    chosen = session.agent.profile.name
    from ..cli.profiles import description_text, open_profiles  # rarely needed

    rows = [
        ("*" if entry.name == chosen else "", entry.name, entry.level, description_text(entry))
        for entry in open_profiles().entries()
        if entry.used
    ]
    shown = table(("", "PROFILE", "FROM", "DESCRIPTION"), rows, widths=(1, 24, 8))
    return f"{shown}\n\nThe profile with * was chosen at the start, with --profile, and stays."


# --- messages and threads ---------------------------------------------------------------------------------------------


@command("/attach", "FILE|URL|off", help="attach a file to the next message; alone, list the files")
async def _attach(session: Session, given: str) -> str:
    if given == "off":
        session.attached = ()
    elif given:
        source = attachment(given, "/attach")
        # A file is read now, so that a problem with it is reported now.
        session.attached += (await session.agent.attachments.add(source),)
    if not session.attached:
        return "nothing is attached to the next message; /attach FILE|URL attaches something"
    names = ", ".join(attachment_name(source) for source in session.attached)
    return f"attached to the next message: {names}; /attach off removes it"


@command("/history", "[N]", help=f"the last N messages of the thread ({_MESSAGES})")
async def _history(session: Session, given: str) -> str:
    limit = _MESSAGES
    if given:
        limit = int(given) if given.isdecimal() and given.isascii() and len(given) < 6 else 0
        if not 1 <= limit <= _MAX_MESSAGES:
            raise InvalidArgument("/history takes a number of messages", remedy=f"give 1 to {_MAX_MESSAGES}")
    messages = await session.thread.history(limit=limit)
    if not messages:
        return f"the thread {session.thread_id!r} has no messages"
    return "\n\n".join(f"{author_text(message)}: {message_text(message)}" for message in messages)


@command("/new", "[NAME]", help="begin a new thread")
async def _new(session: Session, given: str) -> str:
    name = check_id("/new", given) if given else f"chat-{secrets.token_hex(3)}"
    if await session.agent.thread(name).state() is not None:
        raise NameTaken(f"the thread {name!r} exists already", remedy=f"use /thread {name}, or give a new name")
    session.thread_id = name
    return f"on the new thread {name!r}"


@command("/threads", "[TEXT]", help=f"the newest threads ({_THREADS}); with TEXT, those that contain it")
async def _threads(session: Session, given: str) -> str:
    found = await session.agent.threads(limit=_THREADS, query=given or None)
    rows = [
        (
            "*" if state.thread == session.thread_id else "",
            state.thread,
            state.title or "",
            state.status,
            time_text(state.since),
        )
        for state in found
    ]
    if not rows:
        return "no thread contains that text" if given else "there is no thread yet"
    shown = table(("", "THREAD", "TITLE", "STATUS", "SINCE"), rows, widths=(1, 20, 26, 9))
    return f"{shown}\n\n/thread NAME switches to one of them."


@command("/thread", "[NAME]", help="switch to another thread; alone, show the current one")
async def _thread(session: Session, given: str) -> str:
    if given:
        session.thread_id = check_id("/thread", given)
    return f"on the thread {session.thread_id!r} of the workspace {session.agent.workspace!r}"


@command("/fork", "[NAME]", help="continue from here on a new thread")
async def _fork(session: Session, given: str) -> str:
    fork = await session.thread.fork(to=check_id("/fork", given) if given else None)
    origin, session.thread_id = session.thread_id, fork.scope.thread or ""
    return f"on the thread {session.thread_id!r}, a fork of {origin!r}"


@command("/edit", "TEXT", help="edit your last message; a fork keeps the original")
async def _edit(session: Session, given: str) -> None:
    if not given:
        raise InvalidArgument("/edit takes the new text of the message", remedy="write /edit TEXT")
    await session.edit(given)


@command("/copy", "[code]", help="copy the last answer, or the last code block in it")
async def _copy(session: Session, given: str) -> str:
    if given not in ("", "code"):
        raise InvalidArgument("/copy takes no argument or 'code'", remedy="write /copy or /copy code")
    messages = await session.thread.history(limit=_MAX_MESSAGES)
    texts = [text for message in messages if message.kind == "answer" and (text := message.body.get("text"))]
    if given:
        from .screen import code_blocks  # not loaded where nothing is drawn

        texts = [block for text in texts for block in code_blocks(text)]
    if not texts:
        what = "no answer with a code block" if given else "no answer"
        raise InvalidArgument(f"the thread {session.thread_id!r} has {what}", remedy="send a message first")
    session.view.copy(texts[-1])
    return f"copied {len(texts[-1]):,} characters to the clipboard"


@command("/export", "FILE[.md]", help="write the thread to a file, as Markdown or for import")
async def _export(session: Session, given: str) -> str:
    if not given:
        raise InvalidArgument("/export takes a file", remedy="write /export FILE.md, or /export FILE")
    file = expanded("/export", Path(given))
    if file.suffix != ".md":
        exported = await session.agent.upkeep.export(session.thread_id, file)
        return f"{exported.messages} messages are in {str(file)!r}; `worldagent threads import` reads it"
    thread = session.thread
    messages = page = await thread.history(limit=_MAX_MESSAGES)
    while len(page) == _MAX_MESSAGES:
        page = await thread.history(limit=_MAX_MESSAGES, before=messages[0].id)
        messages = (*page, *messages)
    text = "\n\n".join(f"## {author_text(message)}\n\n{message_text(message)}" for message in messages)
    with (
        storage_errors(f"/export cannot write {str(file)!r}", remedy="give the name of a new file"),
        file.open("x", encoding="utf-8") as opened,
    ):
        opened.write(printable(f"# {session.thread_id}\n\n{text}\n"))
    return f"{len(messages)} messages are in {str(file)!r}"


# --- the agent --------------------------------------------------------------------------------------------------------


@command("/model", "[NAME|off]", help="set the model for the next messages; alone, show it")
async def _model(session: Session, given: str) -> str:
    if given and given != "off":
        session.thread.stream("/model", model=given)  # raises if it is not a model; never entered
    if given:
        session.model = None if given == "off" else given
    named = session.agent.settings.models.items()
    names = [f"  {name}  {model}" for name, model in named]
    return "\n".join([f"model {session.model_name}", *(["by name:", *names] if names else [])])


@command("/tools", help="what the agent can call, and its risk")
async def _tools(session: Session, _: str) -> str:
    rows = [
        (function.name, function.title or one_line(function.description), ", ".join(function.risk))
        for function in session.agent.functions
    ]
    return table(("NAME", "WHAT IT DOES", "RISK"), rows, widths=(20, 38)) if rows else "the agent has no tools"


@command("/cost", help="tokens and cost of this chat, and of the workspace today")
async def _cost(session: Session, _: str) -> str:
    chat, today = session.usage, await session.agent.usage()
    tokens = tokens_text(chat.input_tokens, chat.output_tokens)
    cost = "cost not known" if chat.cost is None else f"${chat.cost:.4f}"
    return (
        f"this chat: {counted(chat.calls, 'model call')}, {tokens}, {cost}\n"
        f"the workspace today (UTC): {today.tokens:,} tokens, ${today.cost:.4f} as far as costs are known"
    )


# --- the turn ---------------------------------------------------------------------------------------------------------


@command("/pauses", help="what the thread's turn waits for")
async def _pauses(session: Session, _: str) -> str:
    state = await session.look()
    if session.waiting is not None:
        return session.waiting.describe()
    return STATUS_TEXTS.get(state.status if state else "", f"nothing waits on the thread {session.thread_id!r}")


@command("/resume", "[refresh]", help="resume the turn; refresh: with the current roles")
async def _resume(session: Session, given: str) -> None:
    if given not in ("", "refresh"):
        raise InvalidArgument("/resume takes no argument or 'refresh'", remedy="write answers without a slash")
    await session.resume("refresh" if given else "fail")


@command("/cancel", help="cancel the turn that waits or was stopped")
async def _cancel(session: Session, _: str) -> str:
    cancelled = await session.thread.cancel()
    await session.look()
    if not cancelled:
        return f"no turn waits or runs on the thread {session.thread_id!r}"
    return f"the turn on the thread {session.thread_id!r} is cancelled"


# --- messages beside a turn -------------------------------------------------------------------------------------------


@command("/steer", "TEXT", help="say TEXT to the turn that runs or waits", beside=True)
async def _steer(session: Session, given: str) -> str:
    await session.steer(_some("/steer", given))
    return "the turn reads it before its next step"


@command("/queue", "TEXT", help="say TEXT after the turn that runs or waits", beside=True)
async def _queue(session: Session, given: str) -> str | None:
    if session.running or session.waiting is not None:
        await session.queue(_some("/queue", given))
        return f"queued; {counted(len(await session.thread.queued()), 'message')} waiting, see /queued"
    await session.say(_some("/queue", given))
    return None


@command("/interrupt", "TEXT", help="cancel the turn, and say TEXT", beside=True)
async def _interrupt(session: Session, given: str) -> str | None:
    await session.queue(_some("/interrupt", given), interrupt=True)
    if session.running:
        return "the turn ends at its next safe point"
    await session.look()
    await session.follow_put()
    return None


@command("/queued", help="the messages that wait, in order", beside=True)
async def _queued(session: Session, _: str) -> str:
    rows = [
        (str(number), _WAYS[each.kind], each.author, _WAITS[each.waits_for], each.text or "a task")
        for number, each in enumerate(await session.thread.queued(), start=1)
    ]
    if not rows:
        return f"nothing waits on the thread {session.thread_id!r}"
    return f"{table(('N', 'HOW', 'FROM', '', 'TEXT'), rows, widths=(4, 8, 12, 20, 40))}\n\n/withdraw N deletes one."


@command("/withdraw", "N", help="delete the Nth of those messages", beside=True)
async def _withdraw(session: Session, given: str) -> str:
    found = await session.thread.queued()
    number = int(given) if given.isdecimal() and given.isascii() and len(given) < 6 else 0
    if not 1 <= number <= len(found):
        raise InvalidArgument(f"/withdraw takes a number, 1 to {len(found)}", remedy="use one that /queued shows")
    gone = await session.thread.withdraw(found[number - 1].id)
    return f"withdrawn: {one_line(found[number - 1].text)}" if gone else "it was read meanwhile"


@command("/background", help="the background tasks of the thread", beside=True)
async def _background(session: Session, _: str) -> str:
    from ..cli.operating import ask_in  # rarely needed

    answer = await ask_in(session.agent, session.options, "background_list", thread=session.thread_id)
    rows = [(each.id, each.name, each.status, each.doing or "", each.thread) for each in answer.tasks]
    if not rows:
        return f"the thread {session.thread_id!r} has no background tasks"
    shown = table(("TASK", "NAME", "STATUS", "DOING", "THREAD"), rows, widths=(8, 16, 10, 24))
    return f"{shown}\n\n/thread NAME goes to the thread of a task, where you answer what it asks."


def _some(name: str, given: str) -> str:
    if not given:
        raise InvalidArgument(f"{name} takes a message", remedy=f"write {name} TEXT")
    return given


_WAYS: Final = {"steer": "steers", "queue": "queued", "report": "report"}
_WAITS: Final = {"turn": "", "role": "waits for its role", "error": "could not begin", None: ""}
BESIDE: Final = tuple(each.name for each in COMMANDS.values() if each.beside)
"""The commands that can be used while a turn runs."""


# --- the chat ---------------------------------------------------------------------------------------------------------


@command("/help", help="this list")
async def _help(session: Session, _: str) -> str:
    rows = [(f"{each.name} {each.takes}".strip(), each.help) for each in COMMANDS.values()]
    rows += [
        ("//TEXT", "send a message that begins with a slash"),
        ('@FILE, @"A FILE"', "in a message: attach the file"),
        ("TEXT", "a message, or an answer if the turn waits for one"),
        ("TEXT while it works", "a message that the turn reads before its next step"),
        ("Alt-Enter", "begin a new line, as does Enter after a backslash"),
        ("Ctrl-C", "cancel the answer in progress, or clear the input"),
        ("Ctrl-D", "end the chat, as /quit does"),
        ("Tab", "complete a command or a file"),
    ]
    return "\n".join(f"{left.ljust(_HELP_WIDTH)}  {right}" for left, right in rows)


@command("/quit", help="end the chat")
@command("/later", help="end the chat; you can answer what waits later")
async def _quit(session: Session, _: str) -> None:
    raise ChatEnded
