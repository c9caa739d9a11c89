"""Reads messages at a terminal: editing, several lines, history, completion of commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.shortcuts import PromptSession

from .commands import COMMANDS, may_be_kept
from .history import FileHistory
from .ports import Interrupted

if TYPE_CHECKING:
    from .session import Talk

_RUN: Final = 16  # characters that arrive at once and are no typing
_AT_ONCE: Final = 1 << 20  # keys
_WORDS: Final = {"/role": "off", "/resume": "refresh"}


class PromptInput:
    """A prompt on the terminal, as the loop's source.

    Args:
        talk: What is talked about.
    """

    early, trusted = True, True

    def __init__(self, talk: Talk) -> None:
        self._history = FileHistory(may_be_kept, lambda: talk.thread_id)
        self._touched = False
        self._session: PromptSession[str] = PromptSession(
            input=_input(),
            history=self._history,
            completer=_Commands(),
            complete_while_typing=False,
            key_bindings=self._keys(),
            enable_suspend=True,
            prompt_continuation=lambda width, line, wrapped: " " * width,
        )
        self._session.default_buffer.on_text_changed += self._touch

    async def read(self, prompt: Callable[[], str], default: str) -> str:
        """The next message; see `Source`."""
        self._touched = False

        def message() -> StyleAndTextTuples:
            return [("bold", prompt())]

        # SIGINT is the loop's; in the mode that the prompt uses, Ctrl-C is a key.
        return await self._session.prompt_async(message, default=default, handle_sigint=False)

    def interrupt(self) -> None:
        """End the reading that is under way with `Interrupted`."""
        if self._session.app.is_running:
            self._session.app.exit(exception=Interrupted(self._touched))

    def opened(self, talk: Talk) -> None:
        """Read the history of input."""
        self._history.open(talk.history_file, talk.key)

    async def beside(self, show: Callable[[], None]) -> None:
        """Call `show`, above the prompt if there is one."""
        if self._session.app.is_running:
            await run_in_terminal(show)
        else:
            show()

    def _touch(self, buffer: Buffer) -> None:
        self._touched = True

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        typing = has_focus(DEFAULT_BUFFER)

        @keys.add("enter", filter=typing)
        def _enter(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.document.current_line_before_cursor.endswith("\\") and not buffer.document.text_after_cursor:
                buffer.delete_before_cursor()
                buffer.newline(copy_margin=False)
            else:
                buffer.validate_and_handle()

        @keys.add("escape", "enter", filter=typing)
        def _another_line(event: KeyPressEvent) -> None:
            event.current_buffer.newline(copy_margin=False)

        @keys.add("c-c", filter=typing)
        def _interrupt(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            else:
                self.interrupt()

        return keys


def _input() -> Input:
    """The terminal. What is there is read in one go: a key takes longer the more was typed, and not all mark pastes."""
    if sys.platform == "win32":
        return create_input()
    from prompt_toolkit.input.vt100 import Vt100Input

    class Terminal(Vt100Input):
        def read_keys(self) -> list[KeyPress]:
            keys = found = super().read_keys()
            while found and len(keys) < _AT_ONCE:
                found = super().read_keys()
                keys += found
            return list(_merged(keys))

    return Terminal(sys.stdin)


def _merged(keys: list[KeyPress]) -> Iterator[KeyPress]:
    """Make one key of each run of characters, but for its first one, which may belong to the key before it."""
    run: list[str] = []
    for before, press in pairwise([KeyPress(Keys.Ignore), *keys]):
        if _plain(press) and _plain(before):
            run.append(press.data)
            continue
        yield from _one(run)
        run = []
        yield press
    yield from _one(run)


def _plain(press: KeyPress) -> bool:
    return not isinstance(press.key, Keys)


def _one(run: list[str]) -> list[KeyPress]:
    if len(run) < _RUN:
        return [KeyPress(character) for character in run]
    return [KeyPress(Keys.BracketedPaste, "".join(run))]


class _Commands(Completer):
    """Completes the name of a command, and what may follow `/role` and `/resume`."""

    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Give what may stand at the cursor."""
        text = document.text_before_cursor
        name, space, given = text.partition(" ")
        if not text.startswith("/") or "\n" in text:
            return
        if not space:
            yield from _names(text)
        elif name == "/role" and given.startswith("@"):
            path = Document(given[1:])
            yield from self._paths.get_completions(path, complete_event)
        elif given and (word := _WORDS.get(name, "")).startswith(given):
            yield Completion(word, start_position=-len(given))


def _names(begun: str) -> Iterator[Completion]:
    for command in COMMANDS.values():
        if command.name.startswith(begun):
            yield Completion(
                f"{command.name} " if command.takes else command.name,
                start_position=-len(begun),
                display=command.name,
                display_meta=command.help,
            )


__all__ = ["PromptInput"]
