"""The commands of `worldagent chat`, attachments of messages, and chats whose streams are pipes."""

import asyncio
import base64
import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from support.chat import BOUND, CTRL_C, TAB, Start, chatted, piped
from support.command_line import Run, run_on_stub, started
from support.homes import ADDRESS, PNG, data_uri, written
from support.openai_stub import OpenAIStub

__all__ = ["run_on_stub"]  # a fixture

BLOCK = "Here:\n\n```py\nprint('lit')\n```\n\nThat is all."


# --- threads ----------------------------------------------------------------------------------------------------------


async def test_new_begins_a_thread_and_threads_lists_it_first(environment: dict[str, str], stub: OpenAIStub) -> None:
    lines = ("/threads", "Hello", "/new novel", "Who lit the lamp?", "/threads", "/new", "/threads lamp", "/new novel")
    found = await chatted(environment, *lines)
    texts = [str(value.get("text")) for value in found]
    assert texts[0] == "there is no thread yet"
    assert texts[2] == "on the new thread 'novel'"
    assert [line.split()[:2] for line in texts[4].splitlines()[1:3]] == [["*", "novel"], ["main", "Hello"]]
    assert re.fullmatch(r"on the new thread 'chat-[0-9a-f]{6}'", texts[5])
    assert "novel" in texts[6]
    assert "main" not in texts[6]
    assert found[7]["error"]["code"] == "name_taken"
    assert "Hello" not in stub.asked()


async def test_the_thread_and_its_messages_are_shown(environment: dict[str, str]) -> None:
    lines = ("/history", "Hello", "/thread", "/history", "/history 1", "/history 1001", "/thread " + "x" * 2000)
    found = await chatted(environment, *lines, "/resume x")
    texts = [value.get("text") for value in found]
    assert texts[0] == "the thread 'main' has no messages"
    assert texts[2] == "on the thread 'main' of the workspace 'default'"
    assert texts[3:5] == ["user: Hello\n\nagent: Paris.", "agent: Paris."]
    assert [value["error"]["code"] for value in found[5:]] == ["invalid_argument"] * 3
    assert found[5]["error"]["remedy"] == "give 1 to 1000"


# --- models, tools, cost ----------------------------------------------------------------------------------------------


async def test_model_of_later_messages_is_chosen_and_reset(environment: dict[str, str], stub: OpenAIStub) -> None:
    lines = ("/model", "/model fast", "Hello", "/model openai/other", "Hello", "/model off", "Hello", "/model nonsense")
    named = environment | {"WORLDAGENT_MODELS": json.dumps({"fast": "openai/quick"})}
    found = await chatted(named, *lines)
    assert found[0]["text"] == "model openai/answer\nby name:\n  fast  openai/quick"
    assert found[1]["text"].startswith("model fast\n")
    assert [request["model"] for request in stub.requests] == ["quick", "other", "answer"]
    assert found[7]["error"]["code"] == "model_not_configured"


async def test_cost_counts_the_chat_and_the_day(environment: dict[str, str]) -> None:
    found = await chatted(environment, "/cost", "Hello", "And again", "/cost")
    before, after = (found[at]["text"].splitlines() for at in (0, 3))
    assert before[0] == "this chat: 0 model calls, 0 + 0 tokens, $0.0000"
    assert after[0].startswith("this chat: 2 model calls, ")
    assert after[1].startswith("the workspace today (UTC): ")


# --- what becomes of an answer ----------------------------------------------------------------------------------------


def copied(raw: bytearray) -> list[str]:
    """What the terminal was asked to put on the clipboard."""
    return [base64.b64decode(found).decode() for found in re.findall(rb"\x1b\]52;c;([A-Za-z0-9+/=]*)\x07", raw)]


async def test_copied_answer_or_code_cannot_steer_a_terminal(start: Start, stub: OpenAIStub) -> None:
    stub.answers = [(BLOCK + "\x1b[2J",), ("Paris.",)]
    async with start(SSH_CONNECTION="there") as terminal:  # so that no program of this machine is asked
        assert "has no answer" in await terminal.say("/copy")
        await terminal.say("Light it.")
        assert "characters to the clipboard" in await terminal.say("/copy")
        await terminal.say("And the capital?")
        await terminal.say("/copy")
        await terminal.say("/copy code")
        assert "error: /copy takes no argument or 'code'" in await terminal.say("/copy all")
    assert copied(terminal.raw) == [f"{BLOCK}[2J", "Paris.", "print('lit')\n"]


async def test_exports_a_thread(start: Start, environment: dict[str, str], stub: OpenAIStub, tmp_path: Path) -> None:
    stub.answers = [(BLOCK,)]
    async with start() as terminal:
        await terminal.say("Light it.")
        for name in ("lamp.md", "lamp.jsonl"):
            assert "2 messages are in" in await terminal.say(f"/export {tmp_path / name}")
        assert "File exists" in " ".join((await terminal.say(f"/export {tmp_path / 'lamp.md'}")).split())
        assert "error: /export takes a file" in await terminal.say("/export")
    assert (tmp_path / "lamp.md").read_text() == f"# main\n\n## user\n\nLight it.\n\n## agent\n\n{BLOCK}\n"
    assert (tmp_path / "lamp.jsonl").read_bytes().startswith(b"{")
    found = await chatted(environment, "Hello", f"/export {tmp_path / 'x.md'}", "/copy")
    assert "only at a terminal" in json.dumps(found[1])
    assert "/copy needs a terminal" in json.dumps(found[2])
    assert not (tmp_path / "x.md").exists()


# --- files in messages ------------------------------------------------------------------------------------------------


async def test_a_file_that_a_message_names_goes_with_it(start: Start, stub: OpenAIStub, tmp_path: Path) -> None:
    photo = written(tmp_path, "lake.png", PNG)
    notes = written(tmp_path, "notes of ana.md", b"The lamp is lit.")
    async with start() as terminal:
        shown = await terminal.say(f'Look at @{photo} and @"{notes}".')
        assert shown.endswith("\nattached: lake.png, notes of ana.md\nParis.")
        assert await terminal.say("And @nobody?") == "Paris."
        assert "[attached: lake.png (image/png), notes of ana.md (text/markdown)]" in " ".join(
            (await terminal.say("/history")).split()
        )
    contents = json.dumps(stub.requests[0]["messages"])
    assert data_uri(PNG) in contents
    assert "The lamp is lit." in contents


async def test_files_are_completed_in_messages_and_after_commands(start: Start, tmp_path: Path) -> None:
    written(tmp_path, "lighthouse.md", b"lit")
    async with start() as terminal:
        for begin in ("Look at @", "/attach ", "/export ", "/role @"):
            await terminal.prompt()
            terminal.write(f"{begin}{tmp_path}/ligh" + TAB)
            await terminal.until(lambda: "/lighthouse.md" in "".join(terminal.text.split()))
            terminal.write(CTRL_C)


# --- attachments ------------------------------------------------------------------------------------------------------


def images(body: dict[str, Any]) -> list[str]:
    """The images in a request, oldest message first."""
    contents = [message["content"] for message in body["messages"] if isinstance(message["content"], list)]
    return [part["image_url"]["url"] for content in contents for part in content if part["type"] == "image_url"]


async def test_ask_sends_files_and_addresses_along(run: Run, stub: OpenAIStub, tmp_path: Path) -> None:
    photo = written(tmp_path, "lake.png", PNG)
    result = await run("ask", "What is this?", "--attach", str(photo), "--attach", ADDRESS, "--thread", "main")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Paris.\n", "")
    assert images(stub.requests[0]) == [data_uri(PNG), ADDRESS]
    result = await run("threads", "show", "main")
    assert "user: What is this? [attached: lake.png (image/png), lake.jpg (image/jpeg)]\n" in result.stdout
    result = await run("threads", "show", "main", "--json")
    assert json.loads(result.stdout)["thread"]["messages"][0]["body"]["attachments"][1]["url"] == ADDRESS


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("none.png", "none.png' cannot be attached: "),
        ("https://ana:secret@pictures.example/x.png", "an attachment that is text contains a user or password"),
        ("paper.pdf", "remedy: use --lm with a model that takes it, or set WORLDAGENT_ATTACHMENT_FALLBACK=note"),
    ],
)
async def test_an_attachment_that_cannot_be_sent_is_bad_usage(
    run: Run, stub: OpenAIStub, tmp_path: Path, given: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "paper.pdf", b"%PDF-1.7")
    result = await run("ask", "Look.", "--attach", given)
    assert result.exit_code == 2
    assert told in result.stderr
    assert "secret" not in result.stderr
    assert stub.requests == []


async def test_attachment_goes_with_a_message(environment: dict[str, str], stub: OpenAIStub, tmp_path: Path) -> None:
    photo = written(tmp_path, "lake.png", PNG)
    lines = f"Look.\n/attach {ADDRESS}\n/attach\n/attach off\nAnd now?\n/attach {ADDRESS}\nAnd this?\n/history\n"
    code, out, told = await piped(environment, lines.encode(), "--attach", str(photo))
    assert (code, told) == (0, "")
    assert [images(body) for body in stub.requests] == [
        [data_uri(PNG)], [data_uri(PNG)], [data_uri(PNG), ADDRESS]
    ]  # fmt: skip
    assert "attached to the next message: lake.jpg; /attach off removes it" in out
    assert "nothing is attached to the next message" in out
    assert "And this? [attached: lake.jpg (image/jpeg)]" in out


# --- pipes ------------------------------------------------------------------------------------------------------------


SECRET = "Answer as the keeper of the seventh lighthouse would answer."


async def test_piped_lines_are_messages(environment: dict[str, str], stub: OpenAIStub) -> None:
    code, out, told = await piped(environment, "\ufeffHello\r\n\n/nothing\nAnd again: 灯台".encode())
    assert (code, out) == (0, "Paris.\nParis.\n")
    assert told.startswith("error: the command '/nothing' does not exist")
    assert told.count("\n") == 2
    assert "Hello" in stub.said(0)
    assert "\ufeff" not in stub.said(0)
    assert "灯台" in stub.said(1)


async def test_piped_commands_open_no_file(environment: dict[str, str], stub: OpenAIStub, tmp_path: Path) -> None:
    (key := tmp_path / "key").write_text(SECRET, encoding="utf-8")
    lines = (f"/role {SECRET}", "Hello", f"/role @{key}", f"/attach {key}", "/role off", "Hello", "/quit", "not read")
    found = await chatted(environment, *lines)
    assert [value.get("command") for value in found] == ["/role", None, None, None, "/role", None]
    assert [value.get("role_tiers") for value in found] == [None, ["thread"], None, None, None, []]
    assert [value["error"]["code"] for value in found[2:4]] == ["invalid_argument"] * 2
    assert found[1]["text"] == found[5]["text"] == "Paris."
    assert len(stub.requests) == 2


async def test_message_is_edited_and_conversation_forked(environment: dict[str, str], stub: OpenAIStub) -> None:
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
    assert "Hello" not in stub.said(1)


async def test_piped_input_exits_with_1_if_last_line_failed(environment: dict[str, str], stub: OpenAIStub) -> None:
    huge = b"x" * (9 << 20)
    lines = b"\n".join((b"Hello", huge, b"And again", b"\xff", huge))
    code, out, told = await piped(environment, lines)
    assert (code, out) == (1, "Paris.\nParis.\n")
    assert [line for line in told.splitlines() if line.startswith("error:")] == [
        "error: line 2 is longer than 8388608 bytes, and none of it was sent",
        "error: line 4 is not UTF-8 at byte 0",
        "error: line 5 is longer than 8388608 bytes, and none of it was sent",
    ]
    assert "And again" in stub.said()
    code, out, told = await piped(environment, b"Hello\n", "--json", "--lm", "openai/down-500")
    assert (code, told) == (1, "")
    assert json.loads(out)["error"]["code"] == "model_unavailable"


@pytest.mark.parametrize(("midway", "number"), [(False, signal.SIGINT), (True, signal.SIGINT), (True, signal.SIGTERM)])
async def test_a_signal_ends_a_piped_chat_in_an_answer_and_while_it_reads(
    environment: dict[str, str], home: Path, stub: OpenAIStub, midway: bool, number: signal.Signals
) -> None:
    stub.answers = [("The lamp is lit, ", "and never seen.")] if midway else []
    async with started(home, "chat", "--lm", "openai/answer", "--json", **environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"Tell me.\n")
        if midway:
            await asyncio.wait_for(stub.arrived.wait(), BOUND)
        else:
            assert json.loads(await asyncio.wait_for(process.stdout.readline(), BOUND))["text"] == "Paris."
        process.send_signal(number)
        if number == signal.SIGTERM:
            assert b"stopping at the next step" in await asyncio.wait_for(process.stderr.readline(), BOUND)
            process.send_signal(number)  # which does not wait for that step
        assert await asyncio.wait_for(process.wait(), BOUND) == 128 + number
        out = await process.stdout.read()
    interrupted = ["interrupted"] * (midway and number == signal.SIGINT)
    assert [json.loads(line)["error"]["code"] for line in out.splitlines()] == interrupted
    assert len(stub.requests) == 1
