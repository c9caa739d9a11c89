"""What `worldagent chat` is made of, where a terminal shows too little of it: commands, and what may be kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import AsyncMock, MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldagent.core.errors import InvalidArgument, ThreadPaused
from worldagent.core.pauses import Pause
from worldagent.hosts.cli.chat.commands import COMMANDS, may_be_kept, parse
from worldagent.hosts.cli.chat.loop import Chat
from worldagent.hosts.cli.chat.prompt import ENTRIES, LENGTH, FileHistory
from worldagent.hosts.cli.chat.session import Session
from worldagent.hosts.cli.options import ChatOptions
from worldagent.hosts.service.pauses import printable


def test_what_turns_the_order_of_characters_around_reaches_no_terminal_and_separators_are_line_feeds() -> None:
    for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x1B, 0x9B):
        assert printable(f"one{chr(code)}two") == "onetwo"
    assert printable("one\u2028two\u2029three\u200f\u200e\tfour\n") == "one\ntwo\nthree\u200f\u200e\tfour\n"


@given(st.text(), st.sampled_from(["/role ", "/rol ", "/Role ", " /role\n", "/rolf", "/roles a b", "/thread a ", "/"]))
def test_nothing_that_sets_a_role_or_may_have_been_meant_to_is_kept(text: str, begin: str) -> None:
    name, *given = (begin + text).split()
    if name.startswith("//") or (name in COMMANDS.keys() - {"/role"} and len(given) < 2):
        return
    assert not may_be_kept(begin + text)


@pytest.mark.parametrize(
    "text", ["Hello", "//etc/hosts", "/thread novel", "/new novel", "/attach a.png", "/export a.md", "and /role", ""]
)
def test_messages_and_other_commands_are_kept(text: str) -> None:
    assert may_be_kept(text)


@given(st.text(min_size=1))
def test_a_text_is_a_message_or_a_command_and_never_both(text: str) -> None:
    if not text.strip():
        return
    try:
        found = parse(text)
    except InvalidArgument:
        assert text.strip().startswith("/")
        return
    begins = text.strip()[:2]
    assert isinstance(found, str) == (begins == "//" or not begins.startswith("/"))


def opened(file: Path) -> FileHistory:
    history = FileHistory(may_be_kept, lambda: "main")
    history.open(file, "shop/{}".format)
    return history


async def test_the_history_of_input_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "history"
    history = opened(file)
    for number in range(2 * ENTRIES + 5):
        history.append_string(f"message {number}")
    history.append_string("x" * (LENGTH + 1))
    assert len(file.read_text(encoding="utf-8").splitlines()) == ENTRIES + 5
    strings = opened(file).get_strings()
    assert (len(strings), strings[-1]) == (ENTRIES, f"message {2 * ENTRIES + 4}")
    assert file.stat().st_mode & 0o777 == 0o600
    assert [found.name for found in tmp_path.iterdir()] == ["history"]


async def test_what_is_typed_before_the_file_is_known_is_kept_too(tmp_path: Path) -> None:
    file = tmp_path / "history"
    opened(file).append_string("yesterday")
    thread = "novel"
    history = FileHistory(may_be_kept, lambda: thread)
    history.append_string("early")
    history.append_string("/role Be brief.")
    reading = asyncio.ensure_future(anext(history.load()))
    thread = "main"
    history.open(file, "shop/{}".format)
    assert await asyncio.wait_for(reading, 10) == "early"
    lines = [json.loads(line) for line in file.read_text(encoding="ascii").splitlines()]
    assert lines == [{"thread": "shop/main", "text": "yesterday"}, {"thread": "shop/novel", "text": "early"}]
    assert opened(file).get_strings() == history.get_strings() == ["yesterday", "early"]


async def test_a_file_that_cannot_be_used_ends_no_chat(tmp_path: Path) -> None:
    history = opened(tmp_path / "no" / "such" / "folder")
    history.append_string("Hello")
    assert history.get_strings() == ["Hello"]


async def test_what_was_sent_while_a_question_was_being_found_is_no_answer_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = MagicMock(interactive=True)
    session, sent = Session(ChatOptions(), None, shown), iter(["yes"])
    waits = Pause(id="turn_1/pay:1", kind="approval", function="pay", since=datetime.now(UTC))
    thread = AsyncMock(stream=MagicMock(side_effect=ThreadPaused("it waits", remedy="answer")))
    thread.state.side_effect = [None, MagicMock(status="paused", pauses=1)]
    thread.pauses.return_value = (waits,)
    monkeypatch.setattr(session, "load", lambda *_, **__: None)
    monkeypatch.setattr(session, "agent", AsyncMock())
    monkeypatch.setattr(session, "thread", AsyncMock(return_value=thread))
    monkeypatch.setattr(session, "host_trouble", AsyncMock(return_value=None))

    async def read(prompt: Callable[[], str], default: str) -> str:
        assert prompt() == ("main> " if session.waiting is None else "main answer> ")
        text = next(sent, None)
        if text is None:
            raise EOFError
        session.set_status("paused", [waits])  # after Enter, and before the prompt could say so
        return text

    source = MagicMock(early=False, trusted=True, read=read, show_above=AsyncMock())
    assert await Chat(session, source).run() == 0
    thread.stream.assert_called_once()
    thread.stream_resume.assert_not_called()
    assert session.waiting is not None
    assert session.waiting.open == (waits,)
    shown.waits.assert_called_once_with(session.waiting, "main")
