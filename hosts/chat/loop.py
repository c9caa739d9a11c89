"""The command `chat`: reads messages, runs commands and turns, and handles signals. It draws nothing itself."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...core import check_id
from ...core.errors import InvalidArgument, WorldAgentError
from ...core.events import BackgroundReported
from ...role_resolution import Role
from ..cli.agents import check_hosts
from ..cli.apps import check_app
from ..cli.command import run, signals_handled
from ..cli.exits import DONE, FAILED, INTERRUPTED, PAUSED
from ..cli.options import ChatOptions
from ..cli.output import Output
from ..cli.sources import one_reader
from ..cli.sources import role as role_of
from .commands import BESIDE, ChatEnded, files_named, parse
from .lines import Interrupted, LineInput, Printer
from .session import Session

if TYPE_CHECKING:
    from .prompt import PromptInput

_STANDS: Final = {"paused": "waits for a person: see /background", "done": "is done: see /history"}
END_HINT: Final = "Ctrl-C again ends the chat, as do Ctrl-D and /quit."


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

    with unechoed():
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
        self._work: asyncio.Task[None] | None = None
        self._cancelled = False  # the person has cancelled the work
        self._failed = False  # the last message failed
        self._signal: int | None = None
        self._ending = False

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
        session, view = self._session, self._view
        view.begin(session.options)
        await session.open()
        view.opened(session.about(), await session.host_trouble() if view.interactive else None)
        try:
            await session.pick_up()
        except WorldAgentError as error:  # such as a database that is down; the next turn reports it again
            view.error(error)
        telling = asyncio.create_task(self._tell()) if view.interactive else None
        try:
            await self._read_until_left()
        finally:
            if telling is not None:
                telling.cancel()

    async def _tell(self) -> None:
        """Tell at once how work in the background of the thread stands."""
        session = self._session
        async for event in session.agent.events(account=session.options.account):
            if isinstance(event, BackgroundReported) and event.thread == session.thread_id:
                stands = _STANDS.get(event.status, f"{event.status}: see /history")
                shown = f"background task {event.task} ({event.name}) {stands}"
                await self._source.above(partial(self._view.told, shown))

    async def _read_until_left(self) -> None:
        armed = False  # the next Ctrl-C ends the chat
        while True:
            self._reading = True
            try:
                text = await self._source.read(self._session.prompt)
            except Interrupted:
                if armed or not self._view.interactive:
                    raise ChatEnded(INTERRUPTED) from None
                armed = True
                self._view.note(END_HINT)
                continue
            except WorldAgentError as error:
                self._failed = True
                self._view.error(error)
                continue
            finally:
                self._reading = False
            armed = False
            if text.strip():
                await self._take(self._dispatch(text))
                while self._cancelled and self._session.put and self._view.interactive:
                    await self._take(self._followed())  # the end of a turn lets what waits begin
                if self._signal is not None:  # it came during a turn, which has stopped
                    raise ChatEnded(128 + self._signal)

    async def _followed(self) -> None:
        with self._view.working():
            await self._session.follow_put()

    async def _take(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what one input says. An error is shown and does not end the chat."""
        before, self._cancelled, self._failed = self._failed, False, True
        self._work = asyncio.create_task(work)
        listening = asyncio.create_task(self._listen()) if self._view.interactive else None
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
            self._view.error(error)
            await self._session.advise(error)
        else:
            self._failed = False
        finally:
            self._work = None
            if listening is not None:
                listening.cancel()
                await asyncio.wait({listening})

    async def _listen(self) -> None:
        """Take what the person types while a turn runs: it steers the turn, or is a command for after it."""
        session = self._session
        with suppress(EOFError):  # the next read says so again
            while True:
                await session.works.wait()
                text = await self._source.word(session)
                if not text.strip():
                    continue
                try:
                    await self._beside(text)
                except WorldAgentError as error:
                    self._view.error(error)

    async def _beside(self, text: str) -> None:
        session = self._session
        found = parse(text, trusted=self._source.trusted)
        if isinstance(found, str):
            self._view.note(f"> {found}")
            await session.steer(found)
            return
        command, given = found
        if not command.beside:
            raise InvalidArgument(
                f"{command.name} waits for the end of the turn, and nothing was done",
                remedy="cancel the turn with Ctrl-C, or use one of " + ", ".join(BESIDE),
            )
        if (shown := await command.run(session, given)) is not None:
            self._view.note(shown)

    async def _dispatch(self, text: str) -> None:
        session = self._session
        found = parse(text, trusted=self._source.trusted)
        thread = session.thread_id
        with self._view.working():
            if isinstance(found, str):
                if session.waiting is not None and session.waiting.open:
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
