"""What commands refuse: options that exclude each other or are incomplete, and answers that name no open pause."""

import asyncio
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from worldagent.core.errors import AlreadyAnswered, AnswerInvalid, InvalidArgument, UnknownPause, UsageError
from worldagent.core.pauses import Pause
from worldagent.hosts.chat.lines import LineInput, Printer
from worldagent.hosts.chat.loop import Chat
from worldagent.hosts.chat.screen import Screen
from worldagent.hosts.chat.session import Session, Waiting
from worldagent.hosts.cli.answers import OptionAnswers
from worldagent.hosts.cli.app import app
from worldagent.hosts.cli.command import until_sigterm
from worldagent.hosts.cli.options import AgentOptions, ChatOptions
from worldagent.hosts.cli.output import Output
from worldagent.hosts.cli.sources import message
from worldagent.hosts.service.answers import read_answers

HOST = ("--role-host", "http://127.0.0.1:1/mcp")
RESUME = ("resume", "main")

BAD: list[tuple[tuple[str, ...], str]] = [
    (("ask", "Hi", "--json", "--events"), "--json and --events exclude each other"),
    (("ask", "Hi", *HOST, "--token-file", "/dev/null"), "the token file '/dev/null' is empty"),
    (("ask", "Hi", *HOST, "--role-host-stdio", "x"), "--role-host and --role-host-stdio exclude each other"),
    (("ask", "Hi", "--app", "shop.agent"), "--app must be MODULE:NAME, got 'shop.agent'"),
    (("ask", "Hi", "--attach", " "), "--attach names no file"),
    (("ask", "Hi", "--header", "X-Secret"), "--header has no '='"),
    (("ask", "-"), "standard input must hold at most 1,048,576 bytes for a message"),
    (("task", "subagent", "-p", "request"), "--param 'request' has no '='"),
    ((*RESUME, "--role", "x", "--no-role"), "--role and --no-role exclude each other"),
    ((*RESUME, "--on-role-change", "x"), "--on-role-change 'x' is unknown"),
    (("approvals", "approve", "a", "b", "--hash", "x"), "--hash must be given with exactly one ID"),
    (("approvals", "approve", "pay"), "'pay' is not waiting, and may be answered already"),
    (("roles", "get", "--account", "a", "--channel", "c"), "--account and --channel are both given"),
    (("roles", "get", "--tier", "account"), "--tier account needs the id of its account"),
    (("role-host", "--stdio", "--allow-remote"), "--token-file and --allow-remote are for --http"),
    (("serve", "--stdio", "--allow-remote"), "--allow-remote is for --http"),
    (("storage", "drop", ""), "'' must be a folder or the address of a Postgres database"),
    (("storage", "drop", "mysql://x"), "'mysql' must be a folder or the address of a Postgres database"),
    (("doctor", *HOST, "--scope", "workspace"), "--scope 'workspace' has no '='"),
    (("doctor", *HOST, *("--scope", "workspace=a") * 2), "--scope must name one scope of the workspace tier, not two"),
]


@pytest.mark.parametrize(("words", "told"), BAD, ids=[told for _, told in BAD])
def test_bad_options_are_refused_with_a_remedy(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    env = {"WORLDAGENT_HOME": str(tmp_path / "home"), "WORLDAGENT_LM": "openai/none", "COLUMNS": "200", "TERM": "dumb"}
    result = CliRunner().invoke(app, words, input=b"x" * (1 << 20) + b"y" if "-" in words else b"", env=env)
    assert result.exit_code == 2, result.output
    assert told in result.output
    assert "remedy" in result.output
    assert not (tmp_path / "home").exists()


NOW = datetime.now(UTC)
QUESTION = Pause(id="ask", kind="question", function="ask_person", since=NOW)
CALL = Pause(id="pay", kind="approval", function="pay", since=NOW)
UNPAIRED = {"pay": {"reject": {"reason": "\ud800"}}}
LATE = Pause(id="late", kind="approval", function="pay", since=NOW, expires=NOW)


def answered(*open: Pause, done: str = "", answer: tuple[str, ...] = (), approve: tuple[str, ...] = ()) -> object:
    """Answer pauses with `--answer` and `--approve`."""
    return list(OptionAnswers("main", open, frozenset(filter(None, [done]))).answers(answer, approve, ()))


ANSWERS: list[tuple[Callable[[], object], type[UsageError], str]] = [
    (lambda: answered(QUESTION, answer=("ask",)), InvalidArgument, "--answer 'ask' must give an answer"),
    (lambda: answered(CALL, approve=("pay=yes",)), InvalidArgument, "--approve takes only an id, got 'pay=yes'"),
    (lambda: answered(CALL, approve=("pay", "pay")), InvalidArgument, "'pay' is answered twice"),
    (lambda: answered(LATE, approve=("late",)), AnswerInvalid, "'late' has expired and accepts no answer"),
    (lambda: Waiting([LATE], None).take("yes"), AnswerInvalid, "the pause has expired and accepts no answer"),
    (lambda: answered(CALL, done="ask", answer=("ask=1",)), AlreadyAnswered, "--answer 'ask' is answered already"),
    (lambda: answered(done="ask", answer=("1",)), AlreadyAnswered, "all pauses of the thread 'main' are answered"),
    (lambda: answered(answer=("1",)), UnknownPause, "the thread 'main' does not wait for an answer"),
    (OptionAnswers("main", [], frozenset({"ask"})).approve_rest, AlreadyAnswered, "all pauses of the thread"),
    (OptionAnswers("main", [QUESTION], frozenset()).approve_rest, InvalidArgument, "no call waits for approval"),
    (lambda: read_answers(UNPAIRED, [CALL], account=None), AnswerInvalid, "reject.reason: Input"),
    (lambda: OptionAnswers("main", [CALL], frozenset()).calls(["pay=1"]), UnknownPause, "'pay=1' is not waiting"),
]


@pytest.mark.parametrize(("call", "error", "told"), ANSWERS, ids=[told for _, _, told in ANSWERS])
def test_answers_to_no_open_pause_are_refused(call: Callable[[], object], error: type[UsageError], told: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert told in caught.value.problem
    assert caught.value.remedy


def test_a_dumb_terminal_has_no_clipboard(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TERM", "dumb"), ("FORCE_COLOR", "1"), ("SSH_CONNECTION", "there")):
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidArgument, match="this terminal has no clipboard"):
        Screen().copy("Paris.")


async def test_only_a_signal_ends_a_command_without_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-a-test")
    options = ChatOptions(lm="openai/none", home=tmp_path)
    chat = Chat(Session(options, None, Printer(options)), LineInput())
    for work in (until_sigterm(asyncio.Event().wait()), chat.run()):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await work


def test_a_message_is_required_where_standard_input_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InvalidArgument, match="there is no message; write worldagent ask"):
        message(AgentOptions(), None, Output())
