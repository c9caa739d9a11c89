"""`worldagent chat` where its streams are pipes: a line is a message, and what is printed is data."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from support.chat import BOUND, Service, environment, home, piped, service
from support.command_line import started

__all__ = ["environment", "home", "service"]  # fixtures

SECRET = "Answer as the keeper of the seventh lighthouse would answer."


async def test_piped_lines_are_messages_and_answers_are_all_that_is_printed(
    environment: dict[str, str], service: Service
) -> None:
    code, out, told = await piped(environment, "\ufeffHello\r\n\n/nothing\nAnd again: 灯台".encode())
    assert (code, out) == (0, "Paris.\nParis.\n")
    assert told.startswith("error: the command '/nothing' does not exist")
    assert told.count("\n") == 2
    assert "Hello" in service.said(0)
    assert "\ufeff" not in service.said(0)
    assert "灯台" in service.said(1)


async def test_piped_lines_may_be_commands_and_name_no_file(
    environment: dict[str, str], service: Service, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(SECRET, encoding="utf-8")
    lines = f"/role {SECRET}\nHello\n/role @{tmp_path / 'key'}\n/role off\nHello\n/quit\nnot read\n"
    code, out, told = await piped(environment, lines.encode(), "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert (code, told) == (0, "")
    assert [value.get("command") for value in found] == ["/role", None, None, "/role", None]
    assert [value.get("role_tiers") for value in found] == [None, ["thread"], None, None, []]
    assert found[2]["error"]["code"] == "invalid_argument"
    assert found[1]["text"] == found[4]["text"] == "Paris."
    assert len(service.stub.requests) == 2


async def test_a_message_is_edited_and_the_conversation_forked(environment: dict[str, str], service: Service) -> None:
    lines = "/fork\n/edit\nHello\n/edit Good morning\n/fork plan b\nAnd now?\n/history\n"
    code, out, told = await piped(environment, lines.encode())
    assert code == 0
    assert out.splitlines() == [
        "Paris.",
        "Paris.",
        "on the thread 'plan b', a fork of 'main'",
        "Paris.",
        *("user: Good morning", "", "agent: Paris.", "", "user: And now?", "", "agent: Paris."),
    ]
    assert [line for line in told.splitlines() if not line.startswith("remedy:")] == [
        "error: thread 'main' has no message",
        "error: /edit takes the new text of the message",
        "the original is kept on the thread 'main.2'",
    ]
    assert "Hello" not in service.said(1)


async def test_piped_input_fails_with_1_where_the_last_line_failed(
    environment: dict[str, str], service: Service
) -> None:
    huge = b"x" * (9 << 20)
    lines = b"\n".join((b"Hello", huge, b"And again", b"\xff", huge))
    code, out, told = await piped(environment, lines)
    assert (code, out) == (1, "Paris.\nParis.\n")
    assert [line for line in told.splitlines() if line.startswith("error:")] == [
        "error: line 2 is longer than 8388608 bytes, and none of it was sent",
        "error: line 4 is not UTF-8 at byte 0",
        "error: line 5 is longer than 8388608 bytes, and none of it was sent",
    ]
    assert "And again" in service.said()
    code, out, told = await piped(environment, b"Hello\n", "--json", "--lm", "openai/down-500")
    assert (code, told) == (1, "")
    assert json.loads(out)["error"]["code"] == "model_unavailable"


@pytest.mark.parametrize("midway", [False, True])
async def test_a_piped_chat_is_interrupted_with_130_in_an_answer_and_while_it_reads(
    environment: dict[str, str], home: Path, service: Service, midway: bool
) -> None:
    service.answers = [("The lamp is lit, ", "and never seen.")] if midway else []
    async with started(home, "chat", "--lm", "openai/answer", "--json", **environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"Tell me.\n")
        if midway:
            await asyncio.wait_for(service.stub.arrived.wait(), BOUND)
        else:
            assert json.loads(await asyncio.wait_for(process.stdout.readline(), BOUND))["text"] == "Paris."
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), BOUND) == 130
        out = await process.stdout.read()
    assert [json.loads(line)["error"]["code"] for line in out.splitlines()] == ["interrupted"] * midway
    assert len(service.stub.requests) == 1
