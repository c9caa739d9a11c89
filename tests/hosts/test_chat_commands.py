"""The commands of `worldagent chat` about threads, models, tools and what becomes of an answer; and `@FILE`."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

from support.chat import (
    CHAT,
    CTRL_C,
    TAB,
    Service,
    Start,
    environment,
    home,
    piped,
    service,
    start,
)
from support.homes import PNG, data_uri, written

__all__ = ["environment", "home", "service", "start"]  # fixtures

BLOCK = "Here:\n\n```py\nprint('lit')\n```\n\nThat is all."


async def chatted(environment: dict[str, str], *lines: str, argv: tuple[str, ...] = CHAT) -> list[dict[str, Any]]:
    """What a chat through pipes prints for these lines."""
    _, out, told = await piped(environment, "".join(f"{line}\n" for line in lines).encode(), "--json", argv=argv)
    assert told == ""
    return [json.loads(line) for line in out.splitlines()]


# --- threads ----------------------------------------------------------------------------------------------------------


async def test_new_begins_a_thread_and_threads_lists_the_newest(environment: dict[str, str], service: Service) -> None:
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
    assert "Hello" not in service.asked()


async def test_the_thread_and_its_messages_are_shown(environment: dict[str, str]) -> None:
    lines = ("/history", "Hello", "/thread", "/history", "/history 1", "/history 1001", "/thread " + "x" * 2000)
    found = await chatted(environment, *lines)
    texts = [value.get("text") for value in found]
    assert texts[0] == "the thread 'main' has no messages"
    assert texts[2] == "on the thread 'main' of the workspace 'default'"
    assert texts[3:5] == ["user: Hello\n\nagent: Paris.", "agent: Paris."]
    assert [value["error"]["code"] for value in found[5:]] == ["invalid_argument"] * 2
    assert found[5]["error"]["remedy"] == "give 1 to 1000"


# --- models, tools, cost ----------------------------------------------------------------------------------------------


async def test_the_model_of_the_messages_to_come_is_chosen_and_given_up(
    environment: dict[str, str], service: Service
) -> None:
    lines = ("/model", "/model fast", "Hello", "/model openai/other", "Hello", "/model off", "Hello", "/model nonsense")
    named = environment | {"WORLDAGENT_MODELS": json.dumps({"fast": "openai/quick"})}
    found = await chatted(named, *lines)
    assert found[0]["text"] == "model openai/answer\nby name:\n  fast  openai/quick"
    assert found[1]["text"].startswith("model fast\n")
    assert [request["model"] for request in service.stub.requests] == ["quick", "other", "answer"]
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


async def test_an_answer_or_its_code_is_copied_and_cannot_steer_where_it_is_pasted(
    start: Start, service: Service
) -> None:
    service.answers = [(BLOCK + "\x1b[2J",), ("Paris.",)]
    async with start(SSH_CONNECTION="there") as terminal:  # so that no program of this machine is asked
        assert "has no answer" in await terminal.say("/copy")
        await terminal.say("Light it.")
        assert "characters to the clipboard" in await terminal.say("/copy")
        await terminal.say("And the capital?")
        await terminal.say("/copy")
        await terminal.say("/copy code")
        assert "error: /copy takes no argument or 'code'" in await terminal.say("/copy all")
    assert copied(terminal.raw) == [f"{BLOCK}[2J", "Paris.", "print('lit')\n"]


async def test_a_thread_is_exported_for_people_and_for_import(
    start: Start, environment: dict[str, str], service: Service, tmp_path: Path
) -> None:
    service.answers = [(BLOCK,)]
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


async def test_a_file_that_a_message_names_goes_with_it(start: Start, service: Service, tmp_path: Path) -> None:
    photo = written(tmp_path, "lake.png", PNG)
    notes = written(tmp_path, "notes of ana.md", b"The lamp is lit.")
    async with start() as terminal:
        shown = await terminal.say(f'Look at @{photo} and @"{notes}".')
        assert shown.endswith("\nattached: lake.png, notes of ana.md\nParis.")
        assert await terminal.say("And @nobody?") == "Paris."
        assert "[attached: lake.png (image/png), notes of ana.md (text/markdown)]" in " ".join(
            (await terminal.say("/history")).split()
        )
    contents = json.dumps(service.stub.requests[0]["messages"])
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
