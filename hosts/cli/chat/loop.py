"""The loop of a chat: reads, dispatches to commands or to the agent, and minds signals. It draws nothing itself."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

from ....core.errors import WorldAgentError
from .._session import DONE, FAILED, INTERRUPTED, PAUSED
from .._signals import signals_handled
from .commands import GoOn, Instead, Leave, UnknownCommand, parse
from .ports import Interrupted, Renderer, Source
from .session import Talk
from .turns import Turns
from .waiting import Waiting, standing

_LEAVE_HINT: Final = "Ctrl-C again leaves, so do Ctrl-D and /quit."
_LINE: Final = 72  # characters that are typed again soon


class Chat:
    """One chat, from its begin to its end.

    Args:
        talk: What it is about.
        source: Where messages come from.
        shown: What shows the answers.
    """

    def __init__(self, talk: Talk, source: Source, shown: Renderer) -> None:
        self._talk, self._source, self._shown = talk, source, shown
        self._turns = Turns(talk, shown)
        self._reading = False
        self._asked: Waiting | None = None  # what the prompt asked for
        self._work: asyncio.Task[None] | None = None
        self._cancelled = False  # the work, by the person
        self._failed = False  # the last message
        self._signal: int | None = None
        self._ending = False
        self._default = ""

    async def run(self) -> int:
        """Chat until the person leaves and return the exit code.

        Raises:
            WorldAgentError: The agent cannot be opened.
        """
        main = asyncio.current_task()
        assert main is not None
        with self._signals(main):
            try:
                return await self._chat()
            except (EOFError, Leave) as left:
                return (left.code if isinstance(left, Leave) else DONE) or self._code()
            except asyncio.CancelledError:
                if self._signal is None:
                    raise
                main.uncancel()
                return 128 + self._signal
            finally:
                self._part()
                await self._turns.aclose()
                await self._talk.aclose()

    def _code(self) -> int:
        """The exit code of a chat that ends as it should: for a program the one of its last line."""
        if self._shown.interactive:
            return DONE
        return PAUSED if self._talk.left("paused") else FAILED if self._failed else DONE

    def _part(self) -> None:
        """Say what is left for another day; a program has it with the turn."""
        if not self._shown.interactive:
            return
        for statuses, what in ((("paused",), "waits"), (("stopped",), "was stopped")):
            for thread in self._talk.left(*statuses):
                self._shown.note(f"The turn of the thread {thread!r} {what}. Go on with:\n{self._talk.command(thread)}")

    async def _chat(self) -> int:
        self._shown.begin(self._talk)
        self._talk.load(self._shown.notes, beside=self._source.early, quiet=self._shown.interactive)
        opening = asyncio.create_task(self._open())
        try:
            if not self._source.early:
                await opening
            await self._until_left(opening)
        finally:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
        return DONE

    async def _open(self) -> None:
        shown = self._shown
        await self._talk.agent()
        self._source.opened(self._talk)
        trouble = await self._talk.host_trouble() if shown.interactive else None
        if self._work is not None and self._talk.role_host is not None:
            await asyncio.wait({self._work})  # the host took its time, and an answer may be half written
        await self._source.beside(lambda: shown.opened(self._talk, trouble))
        await self._pick_up()

    async def _pick_up(self) -> None:
        """Show what waits on the thread from before, unless the person is at it already."""
        if self._work is not None:
            await asyncio.wait({self._work})
        try:
            while not self._turns.begun:
                told = standing(await self._talk.look())
                if self._work is None:
                    await self._source.beside(partial(self._turns.show_waiting, told))
                    return
                await asyncio.wait({self._work})
        except WorldAgentError as error:  # a database that is down is told, and by the next turn again
            problem = error
            await self._source.beside(lambda: self._shown.error(problem))

    async def _until_left(self, opening: asyncio.Task[None]) -> None:
        armed = False
        while True:
            try:
                text = await self._read(opening)
            except Interrupted as interrupt:
                if not self._shown.interactive or (armed and not interrupt.touched):
                    raise Leave(INTERRUPTED) from None
                armed = True
                self._shown.note(_LEAVE_HINT)
                continue
            except WorldAgentError as error:
                if opening.done() and not opening.cancelled() and opening.exception() is error:
                    raise
                self._failed = True
                self._shown.error(error)
                continue
            armed = False
            if text.strip():
                await self._take(text)
                if self._signal is not None:  # it came in a turn, which has stopped
                    raise Leave(128 + self._signal)

    async def _read(self, opening: asyncio.Task[None]) -> str:
        """Read the next message; an agent that cannot be opened ends the reading."""
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
        waiting = self._talk.waiting
        self._asked = waiting if waiting is not None and waiting.open else None
        return self._talk.prompt

    async def _take(self, text: str) -> None:
        """Do what one input asks for; what goes wrong is shown and does not end the chat."""
        before, self._cancelled, self._failed = self._failed, False, True
        self._work = asyncio.create_task(self._dispatch(text))
        try:
            await self._work
        except asyncio.CancelledError:
            if not self._cancelled:
                raise
            self._shown.cancelled()
            if not self._shown.interactive:
                raise Leave(INTERRUPTED) from None
        except Leave:
            self._failed = before
            raise
        except WorldAgentError as error:
            if self._talk.broken:
                raise
            if isinstance(error, UnknownCommand) and ("\n" in text or len(text) > _LINE):
                self._default = text  # not kept in any history, so it is given back
            self._shown.error(error)
            await self._turns.after(error)
        else:
            self._failed = False
        finally:
            self._work = None

    async def _dispatch(self, text: str) -> None:
        found = parse(text, trusted=self._source.trusted)
        thread = self._talk.thread_id
        with self._shown.working():
            if isinstance(found, str):
                # What was sent before the person saw a question is no answer to it.
                await (self._turns.say(found) if self._asked is None else self._turns.answer(found))
                return
            command, given = found
            told = await command.run(self._talk, given)
            if isinstance(told, GoOn):
                await self._turns.go_on(told.on_role_change)
                return
            if isinstance(told, Instead):
                await self._turns.edit(told.text)
                return
        self._shown.told(command.name, told)
        if self._talk.thread_id != thread:
            await self._turns.pick_up()

    def _signals(self, main: asyncio.Task[Any]) -> AbstractContextManager[None]:
        """Ctrl-C cancels what is under way; the others end the chat in order."""
        handlers: dict[int, Callable[[], None]] = {signal.SIGINT: partial(self._interrupt, main)}
        for name in ("SIGTERM", "SIGHUP"):
            if (number := getattr(signal, name, None)) is not None:
                handlers[number] = partial(self._stop, main, number)
        return signals_handled(handlers)

    def _interrupt(self, main: asyncio.Task[Any]) -> None:
        if self._work is None and self._reading:
            self._source.interrupt()
        elif self._work is None:  # the agent loads or closes
            self._stop(main, signal.SIGINT)
        elif not self._cancelled:  # a second cancelling would cut off the first one's clean-up
            self._cancelled = True
            self._work.cancel()

    def _stop(self, main: asyncio.Task[Any], number: int) -> None:
        """End the chat: a turn that is under way stops at its next step, at a second signal at once."""
        first, self._signal = self._signal is None, self._signal or number
        if number == getattr(signal, "SIGHUP", None):
            self._shown.hung_up()
        if first and number != signal.SIGINT and self._turns.drain():
            return
        if not self._ending:
            self._ending = True
            main.cancel()


__all__ = ["Chat"]
