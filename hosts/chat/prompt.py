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
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.application.current import set_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter, WordCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.shortcuts import PromptSession

from ...core.files import replace_file
from .commands import COMMANDS, may_be_kept
from .lines import Interrupted

if TYPE_CHECKING:
    from .session import Session

_TAKING_FILES: Final = ("/attach", "/export")
_OTHER_KEYS: Final = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z~]|O.)")  # such as arrows
_FILE_BEGUN: Final = re.compile(r'(?<!\S)@(?:"([^"\n]*)|([^\s"]*))$')  # in a message, or after /role


class PromptInput:
    """A prompt on the terminal. Its methods are those of `LineInput`.

    Args:
        session: The chat.

    Attributes:
        trusted: Whether a person types the lines.
    """

    trusted = True

    def __init__(self, session: Session) -> None:
        self._prompt: PromptSession[str] = PromptSession(
            history=FileHistory(session),
            completer=_Completer(),
            complete_while_typing=False,
            key_bindings=self._keys(),
            enable_suspend=True,
            prompt_continuation=lambda width, line, wrapped: " " * width,
        )
        self._typing = Typing()

    async def read(self, prompt: str) -> str:
        """The next message, read at `prompt`.

        Raises:
            EOFError: Ctrl-D.
            Interrupted: Ctrl-C.
        """
        typed, left = self._typing.taken()
        if left:
            raise EOFError
        # The event loop handles SIGINT. In the mode that the prompt uses, Ctrl-C is a key.
        return await self._prompt.prompt_async([("bold", prompt)], default=typed, handle_sigint=False)

    async def word(self, session: Session) -> str:
        """The next line that is typed while a turn runs. What is typed is shown below the answer."""
        if sys.platform == "win32":
            await asyncio.Event().wait()  # keys wait for the prompt
        loop = asyncio.get_running_loop()
        entered: asyncio.Future[str] = loop.create_future()

        def pressed() -> None:
            keys = b""
            with suppress(OSError):  # the terminal is gone
                keys = os.read(0, 4096)
            if not keys:
                loop.remove_reader(0)
            text = self._typing.press(keys)
            session.view.typing(self._typing.text)
            if text is not None and not entered.done():
                entered.set_result(text)

        loop.add_reader(0, pressed)
        try:
            return await entered
        finally:
            loop.remove_reader(0)
            session.view.typing("")
            if session.waiting is not None:
                self._typing.taken()  # it could answer a question that the person has not seen

    async def above(self, show: Callable[[], None]) -> None:
        """Show something above the prompt, if there is one now."""
        with set_app(self._prompt.app):
            await run_in_terminal(show)

    def interrupt(self) -> None:
        """Make the current read raise `Interrupted`."""
        if self._prompt.app.is_running:
            self._prompt.app.exit(exception=Interrupted())

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


class Typing:
    """A line that a person types while an answer is shown: text, Backspace, Ctrl-U, Ctrl-W, Alt-Enter, Enter, Ctrl-D.

    Attributes:
        text: What was typed so far.
    """

    def __init__(self) -> None:
        self.text = ""
        self._left = False
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def taken(self) -> tuple[str, bool]:
        """Take out what was typed so far, and whether Ctrl-D was pressed on an empty line."""
        text, left = self.text, self._left
        self.text, self._left = "", False
        return text, left

    def press(self, keys: bytes) -> str | None:
        """Take keys, and return the line if they end with Enter. Before other keys, as in a paste, it is a new line."""
        given = _OTHER_KEYS.sub("", self._decoder.decode(keys).replace("\x1b\r", "\n"))
        enters = given.endswith("\r")
        for key in given.removesuffix("\r"):
            if key in "\x7f\x08":
                self.text = self.text[:-1]
            elif key == "\x15":
                self.text = ""
            elif key == "\x17":
                self.text = self.text[: self.text.rstrip().rfind(" ") + 1]
            elif key == "\x04":
                self._left = self._left or not self.text
            elif key in "\r\n" or key.isprintable():
                self.text += "\n" if key == "\r" else key
        if not enters:
            return None
        if self.text.endswith("\\"):
            self.text = f"{self.text[:-1]}\n"
            return None
        return self.taken()[0]


class _Completer(Completer):
    """Completes the name of a command, and what can follow it."""

    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=True)
        helps = {f"{each.name} " if each.takes else each.name: each.help for each in COMMANDS.values()}
        self._commands = WordCompleter(list(helps), meta_dict=helps, sentence=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield the completions at the cursor."""
        text = document.text_before_cursor
        name, space, given = text.partition(" ")
        if file := _FILE_BEGUN.search(text):
            yield from self._paths.get_completions(Document(file[1] or file[2] or ""), complete_event)
        elif space and name in _TAKING_FILES:
            yield from self._paths.get_completions(Document(given), complete_event)
        elif text.startswith("/"):
            yield from self._commands.get_completions(document, complete_event)


# --- the history of input ---------------------------------------------------------------------------------------------

ENTRIES: Final = 1000  # entries that are kept


class FileHistory(History):
    """One JSON object per line, oldest first. A file that cannot be used is ignored.

    Args:
        session: The chat. Its agent knows the file once something is read.
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def load_history_strings(self) -> Iterable[str]:
        """Read the kept entries, newest first, and remove older ones from the file."""
        file = self._session.agent.storage.typed
        with suppress(OSError):  # there is none yet, or it cannot be read
            lines = [line for line in file.read_bytes().splitlines() if _text(line)]
            if len(lines) > ENTRIES:
                replace_file(file, b"".join(line + b"\n" for line in lines[-ENTRIES:]))
            return [_text(line) for line in lines[: -ENTRIES - 1 : -1]]
        return []

    def append_string(self, string: str) -> None:
        """Keep a text, if it can be kept."""
        if may_be_kept(string):
            super().append_string(string)

    def store_string(self, string: str) -> None:
        """Write a text to the file."""
        from ...memory import thread_key  # not before the agent is loaded

        data = json.dumps({"thread": thread_key(self._session.thread.scope), "text": string}).encode() + b"\n"
        with suppress(OSError):  # such as a full disk, which must not end the chat
            handle = os.open(self._session.agent.storage.typed, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with open(handle, "wb", buffering=0) as opened:
                opened.write(data)


def _text(line: bytes) -> str:
    """The typed text of a line; empty if the line is not an entry."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):  # such as the half line that a full disk leaves
        return ""
    text = found.get("text") if isinstance(found, dict) else found
    return text if isinstance(text, str) else ""
