"""The command `chat`: reads messages, runs commands and turns, and handles signals. It draws nothing itself."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ....core import check_id
from ....core.errors import WorldAgentError
from ....role_resolution import Role
from ..agents import check_hosts
from ..apps import check_app
from ..command import run, signals_handled
from ..exits import DONE, FAILED, INTERRUPTED, PAUSED
from ..options import ChatOptions
from ..output import Output
from ..sources import one_reader
from ..sources import role as role_of
from .commands import ChatEnded, UnknownCommand, files_named, parse
from .lines import Interrupted, LineInput, Printer
from .session import Session

if TYPE_CHECKING:
    from .prompt import PromptInput
    from .session import Waiting

END_HINT: Final = "Ctrl-C again ends the chat, as do Ctrl-D and /quit."
MAX_RETYPED_CHARACTERS: Final = 72  # characters; a longer text is given back for editing


def chat(options: ChatOptions) -> int:
    """Run the command and return its exit code."""
    output = Output(json=options.json, verbose=options.verbose)

    def begin() -> Coroutine[Any, Any, int | None]:
        one_reader(options, "chat", "-")
        check_app(options)
        check_hosts(options)
        for name in ("workspace", "thread", "account", "channel"):
            if (given := getattr(options, name)) is not None:
                check_id(f"--{name}", given)
        return _chat(options, role_of(options.role))

    return run(output, begin)


async def _chat(options: ChatOptions, role: Role | None) -> int:
    """Choose the input and the view. This runs in the event loop, since the terminal's reader belongs to it."""
    if options.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return await Chat(Session(options, role, Printer(options)), LineInput()).run()
    from .screen import Screen, unechoed

    session = Session(options, role, Screen())
    if not logging.root.handlers:
        # Without a handler, Python prints warnings on stderr, where the person types.
        logging.root.addHandler(logging.NullHandler())
    if os.environ.get("TERM", "") in ("", "dumb", "unknown"):
        return await Chat(session, LineInput(prompting=True)).run()
    from .prompt import PromptInput

    with unechoed(lines=False):
        return await Chat(session, PromptInput(session)).run()


class Chat:
    """One chat, from start to end.

    Args:
        session: Its state and its turns.
        source: Where messages come from.
    """

    def __init__(self, session: Session, source: PromptInput | LineInput) -> None:
        self._session, self._source, self._view = session, source, session.view
        self._reading = False
        self._asked: Waiting | None = None  # what the prompt asked for
        self._work: asyncio.Task[None] | None = None
        self._cancelled = False  # the person has cancelled the work
        self._failed = False  # the last message failed
        self._signal: int | None = None
        self._ending = False
        self._default = ""

    async def run(self) -> int:
        """Chat until the person ends the chat, and return the exit code.

        Raises:
            WorldAgentError: The agent cannot be opened.
        """
        main = asyncio.current_task()
        assert main is not None
        with signals_handled(self._handlers(main)):
            try:
                await self._chat()
            except EOFError:
                return self._exit_code()
            except ChatEnded as left:
                return left.code or self._exit_code()
            except asyncio.CancelledError:
                if self._signal is None:
                    raise
                main.uncancel()
                return 128 + self._signal
            finally:
                self._show_resumable()
                await self._session.aclose()
        raise AssertionError("a chat ends by an exception")

    def _exit_code(self) -> int:
        """The exit code of a chat that ends normally. For a program it is the exit code of the last line."""
        if self._view.interactive:
            return DONE
        return PAUSED if self._session.threads_with("paused") else FAILED if self._failed else DONE

    def _show_resumable(self) -> None:
        """Show which turns can be resumed later. A program gets this with the turn."""
        for status, what in (("paused", "waits"), ("stopped", "was stopped")):
            for thread in self._session.threads_with(status) if self._view.interactive else ():
                command = self._session.command(thread)
                self._view.note(f"The turn of the thread {thread!r} {what}. Resume it with:\n{command}")

    async def _chat(self) -> None:
        self._view.begin(self._session.options)
        self._session.load(in_thread=self._source.early)
        opening = asyncio.create_task(self._open())
        try:
            if not self._source.early:
                await opening
            await self._read_until_left(opening)
        finally:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)

    async def _open(self) -> None:
        """Show the model and the open pauses, once the agent is loaded."""
        session, view = self._session, self._view
        self._source.opened(await session.agent())
        trouble = await session.host_trouble() if view.interactive else None
        if self._work is not None and session.role_host is not None:
            await asyncio.wait({self._work})  # the host was slow, and an answer may be half written
        await self._source.show_above(lambda: view.opened(session.about(), trouble))
        try:
            await self._pick_up()
        except WorldAgentError as error:  # such as a database that is down; the next turn reports it again
            problem = error
            await self._source.show_above(lambda: view.error(problem))

    async def _pick_up(self) -> None:
        """Show what an earlier turn of the thread waits for, unless the person has begun a new one."""
        while True:
            if self._work is not None:
                await asyncio.wait({self._work})
            if self._session.began:
                return
            state = await self._session.look()
            if self._work is None:
                await self._source.show_above(partial(self._session.show_status, state))
                return

    async def _read_until_left(self, opening: asyncio.Task[None]) -> None:
        armed = False  # the next Ctrl-C ends the chat
        while True:
            try:
                text = await self._read(opening)
            except Interrupted as interrupt:
                if not self._view.interactive or (armed and not interrupt.touched):
                    raise ChatEnded(INTERRUPTED) from None
                armed = True
                self._view.note(END_HINT)
                continue
            except WorldAgentError as error:
                if self._session.broken:
                    raise
                self._failed = True
                self._view.error(error)
                continue
            armed = False
            if text.strip():
                await self._take(text)
                if self._signal is not None:  # it came during a turn, which has stopped
                    raise ChatEnded(128 + self._signal)

    async def _read(self, opening: asyncio.Task[None]) -> str:
        """Read the next message. An agent that cannot be opened ends the reading."""
        default, self._default = self._default, ""
        self._reading = True
        self._prompt()
        reading = asyncio.create_task(self._source.read(self._prompt, default))
        try:
            if not opening.done():
                await asyncio.wait({reading, opening}, return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                opening.result()
            return await reading
        finally:
            self._reading = False
            if not reading.done():
                reading.cancel()
                await asyncio.wait({reading})

    def _prompt(self) -> str:
        waiting = self._session.waiting
        self._asked = waiting if waiting is not None and waiting.open else None
        return self._session.prompt

    async def _take(self, text: str) -> None:
        """Handle one input. An error is shown and does not end the chat."""
        before, self._cancelled, self._failed = self._failed, False, True
        self._work = asyncio.create_task(self._dispatch(text))
        try:
            await self._work
        except asyncio.CancelledError:
            if not self._cancelled:
                raise
            self._view.interrupted()
            if not self._view.interactive:
                raise ChatEnded(INTERRUPTED) from None
        except ChatEnded:
            self._failed = before
            raise
        except WorldAgentError as error:
            if self._session.broken:
                raise
            if isinstance(error, UnknownCommand) and ("\n" in text or len(text) > MAX_RETYPED_CHARACTERS):
                self._default = text  # no history keeps it, so it is given back
            self._view.error(error)
            await self._session.advise(error)
        else:
            self._failed = False
        finally:
            self._work = None

    async def _dispatch(self, text: str) -> None:
        session = self._session
        found = parse(text, trusted=self._source.trusted)
        thread = session.thread_id
        with self._view.working():
            if isinstance(found, str):
                # A text that was sent before the person saw a question does not answer it.
                if self._asked is not None:
                    await session.answer(found)
                else:
                    await session.say(found, files_named(found) if self._source.trusted else ())
                return
            command, given = found
            shown = await command.run(session, given)
        if shown is not None:
            self._view.show_result(command.name, shown)
        if session.thread_id != thread:
            await session.pick_up()

    def _handlers(self, main: asyncio.Task[Any]) -> dict[int, Callable[[], None]]:
        """Ctrl-C cancels the running work. The other signals end the chat in an orderly way."""
        handlers: dict[int, Callable[[], None]] = {signal.SIGINT: partial(self._interrupt, main)}
        for name in ("SIGTERM", "SIGHUP"):
            if (number := getattr(signal, name, None)) is not None:  # Windows lacks one
                handlers[number] = partial(self._stop, main, number)
        return handlers

    def _interrupt(self, main: asyncio.Task[Any]) -> None:
        if self._work is None and self._reading:
            self._source.interrupt()
        elif self._work is None:  # the agent is loading or closing
            self._stop(main, signal.SIGINT)
        elif not self._cancelled:  # a second cancellation would interrupt the clean-up of the first
            self._cancelled = True
            self._work.cancel()

    def _stop(self, main: asyncio.Task[Any], number: int) -> None:
        """End the chat. A running turn stops at its next step, or at once on a second signal."""
        first, self._signal = self._signal is None, self._signal or number
        if number == getattr(signal, "SIGHUP", None):
            self._view.hung_up()
        if first and number != signal.SIGINT and self._session.drain():
            return
        if not self._ending:
            self._ending = True
            main.cancel()


__all__ = ["Chat", "chat"]
