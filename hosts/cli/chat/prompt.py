"""Reads messages at a terminal: editing, several lines, completion, and the history of typed input.

The history is a bounded file that only its owner can read. It never holds a role (R7). Each line names the thread that
it was typed on, so that it is removed with the thread. Older versions wrote only the text.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.history import History
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.shortcuts import PromptSession

from ....core.files import replace_file
from .commands import COMMANDS, may_be_kept
from .lines import Interrupted
from .session import answer_keys

if TYPE_CHECKING:
    from ....agent import WorldAgent
    from .session import Session

MAX_TYPED_CHARACTERS: Final = 16  # characters; more of them at once are a paste
MAX_KEYS_PER_READ: Final = 1 << 20  # keys that are read in one go
_WORDS: Final = {"/role": "off", "/resume": "refresh", "/model": "off", "/copy": "code"}
_TAKING_FILES: Final = ("/attach", "/export")
_FILE_BEGUN: Final = re.compile(r'(?<!\S)@(?:"([^"\n]*)|([^\s"]*))$')  # in a message, or after /role


class PromptInput:
    """A prompt on the terminal. Its methods are those of `LineInput`.

    Args:
        session: The chat.

    Attributes:
        early: Whether a person can type before the agent is loaded.
        trusted: Whether a person types the lines.
    """

    early, trusted = True, True

    def __init__(self, session: Session) -> None:
        self._history = FileHistory(may_be_kept, lambda: session.thread_id)
        self._session = session
        self._touched = False
        self._prompt: PromptSession[str] = PromptSession(
            input=_input(),
            history=self._history,
            completer=_Completer(),
            complete_while_typing=False,
            key_bindings=self._keys(),
            enable_suspend=True,
            prompt_continuation=lambda width, line, wrapped: " " * width,
        )
        self._prompt.default_buffer.on_text_changed += self._touch

    async def read(self, prompt: Callable[[], str], default: str) -> str:
        """The next message.

        Args:
            prompt: Gives the prompt, which can change while the message is typed.
            default: A text to edit.

        Raises:
            EOFError: Ctrl-D.
            Interrupted: Ctrl-C.
        """
        self._touched = False
        # The event loop handles SIGINT. In the mode that the prompt uses, Ctrl-C is a key.
        return await self._prompt.prompt_async(lambda: [("bold", prompt())], default=default, handle_sigint=False)

    def interrupt(self) -> None:
        """Make the current read raise `Interrupted`."""
        if self._prompt.app.is_running:
            self._prompt.app.exit(exception=Interrupted(self._touched))

    def opened(self, agent: WorldAgent) -> None:
        """Open the history of input, which is known once the agent is loaded."""
        from ....memory import thread_key

        self._history.open(agent.storage.typed, lambda thread: thread_key(agent.thread(thread).scope))

    async def show_above(self, show: Callable[[], None]) -> None:
        """Call `show`, which prints something, above the prompt if there is one."""
        if self._prompt.app.is_running:
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

        for key in ("y", "n", "a"):
            keys.add("escape", key, filter=typing & Condition(partial(self._answers, key)))(self._answer)
        return keys

    def _answers(self, key: str) -> bool:
        """Whether a key answers the open pause, and nothing else is typed."""
        return not self._prompt.default_buffer.text and key in self._answer_keys()

    def _answer(self, event: KeyPressEvent) -> None:
        event.current_buffer.text = self._answer_keys()[event.key_sequence[-1].key]
        event.current_buffer.validate_and_handle()

    def _answer_keys(self) -> dict[str, str]:
        waiting = self._session.waiting
        return answer_keys(waiting.open[0]) if waiting is not None and waiting.open else {}


def _input() -> Input:
    """The terminal, read in one go: each key costs more the longer the input is, and not all terminals mark pastes."""
    if sys.platform == "win32":
        return create_input()
    from prompt_toolkit.input.vt100 import Vt100Input

    class Terminal(Vt100Input):
        def read_keys(self) -> list[KeyPress]:
            keys = found = super().read_keys()
            while found and len(keys) < MAX_KEYS_PER_READ:
                found = super().read_keys()
                keys += found
            return list(_merged(keys))

    return Terminal(sys.stdin)


def _merged(keys: list[KeyPress]) -> Iterator[KeyPress]:
    """Make a paste of each long run of characters, except the first one, which can belong to the key before it."""
    for special, run in groupby(keys, key=lambda press: isinstance(press.key, Keys)):
        first, *rest = run
        yield first
        if special or len(rest) < MAX_TYPED_CHARACTERS:
            yield from rest
        else:
            yield KeyPress(Keys.BracketedPaste, "".join(press.data for press in rest))


class _Completer(Completer):
    """Completes the name of a command, and what can follow it."""

    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield the completions at the cursor."""
        text = document.text_before_cursor
        name, space, given = text.partition(" ")
        if file := _FILE_BEGUN.search(text):
            yield from self._paths.get_completions(Document(file[1] or file[2] or ""), complete_event)
        elif not text.startswith("/") or "\n" in text:
            return
        if not space:
            for command in COMMANDS.values():
                if command.name.startswith(name):
                    word = f"{command.name} " if command.takes else command.name
                    yield Completion(word, -len(name), display=command.name, display_meta=command.help)
        elif name in _TAKING_FILES:
            yield from self._paths.get_completions(Document(given), complete_event)
        elif given and (word := _WORDS.get(name, "")).startswith(given):
            yield Completion(word, -len(given))


# --- the history of input ---------------------------------------------------------------------------------------------

ENTRIES: Final = 1000  # entries that are kept
LENGTH: Final = 10_000  # characters of one entry; longer ones are not kept


class FileHistory(History):
    """One JSON object per line, oldest first. Input that is typed before the file is known is written later.

    Args:
        kept: Whether a text can be kept at all, in the file and in memory.
        thread: Gives the id of the current thread.
    """

    def __init__(self, kept: Callable[[str], bool], thread: Callable[[], str]) -> None:
        super().__init__()
        self._kept, self._thread = kept, thread
        self._key: Callable[[str], str] = str
        self._early: list[tuple[str, str]] = []
        self._file: Path | None = None
        self._opened = asyncio.Event()
        self._lines = 0  # in the file

    def open(self, file: Path, key: Callable[[str], str]) -> None:
        """Read `file` and write to it from now on. A file that cannot be used is ignored.

        Args:
            file: The file.
            key: Gives the key of a thread's id in this workspace.
        """
        self._file, self._key = file, key
        found = _read(file)
        self._lines = len(found)
        if self._lines > ENTRIES:
            self._shorten(file)
        self._loaded_strings += [_text(line) for line in found[: -ENTRIES - 1 : -1]]
        for thread, text in self._early:
            self._write(file, thread, text)
        self._opened.set()

    async def load(self) -> AsyncGenerator[str, None]:
        """Yield the kept entries, newest first, once the file is known."""
        await self._opened.wait()
        for text in list(self._loaded_strings):
            yield text

    def load_history_strings(self) -> Iterable[str]:
        """Return nothing, since `open` reads the file."""
        return ()

    def append_string(self, string: str) -> None:
        """Keep a text, if it can be kept."""
        if self._kept(string) and len(string) <= LENGTH:
            super().append_string(string)

    def store_string(self, string: str) -> None:
        """Write a text to the file, once the file is known."""
        if self._file is None:
            self._early.append((self._thread(), string))
        else:
            self._write(self._file, self._thread(), string)

    def _write(self, file: Path, thread: str, text: str) -> None:
        if self._lines >= 2 * ENTRIES:
            self._shorten(file)
        data = json.dumps({"thread": self._key(thread), "text": text}).encode() + b"\n"
        with suppress(OSError):  # such as a full disk, which must not end the chat
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with open(handle, "wb", buffering=0) as opened:
                if hasattr(os, "fchmod"):  # Windows lacks it
                    os.fchmod(handle, 0o600)
                self._lines += opened.write(data) == len(data)

    def _shorten(self, file: Path) -> None:
        lines = _read(file)[-ENTRIES:]
        with suppress(OSError):
            replace_file(file, b"".join(line + b"\n" for line in lines))
            self._lines = len(lines)


def _read(file: Path) -> list[bytes]:
    """The lines that hold a text."""
    try:
        return [line for line in file.read_bytes().splitlines() if _text(line)]
    except OSError:  # there is none yet, or it cannot be read
        return []


def _text(line: bytes) -> str:
    """The typed text of a line; empty if the line is not an entry."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):  # such as the half line that a full disk leaves
        return ""
    text = found.get("text") if isinstance(found, dict) else found
    return text if isinstance(text, str) else ""
