"""Attachments on the command line: `ask --attach`, `chat --attach`, /attach, and how they are shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.chat import Service, environment, home, piped, service
from support.command_line import Run, run_on_stub, stub
from support.homes import ADDRESS, PNG, data_uri, written
from support.openai_stub import OpenAIStub

__all__ = ["environment", "home", "run_on_stub", "service", "stub"]  # fixtures


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
async def test_what_cannot_be_sent_along_is_bad_usage(
    run: Run, stub: OpenAIStub, tmp_path: Path, given: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "paper.pdf", b"%PDF-1.7")
    result = await run("ask", "Look.", "--attach", given)
    assert result.exit_code == 2
    assert told in result.stderr
    assert "secret" not in result.stderr
    assert stub.requests == []


async def test_a_chat_sends_what_is_attached_with_the_next_message_alone(
    environment: dict[str, str], service: Service, tmp_path: Path
) -> None:
    photo = written(tmp_path, "lake.png", PNG)
    lines = f"Look.\n/attach {ADDRESS}\n/attach\n/attach off\nAnd now?\n/attach {ADDRESS}\nAnd this?\n/history\n"
    code, out, told = await piped(environment, lines.encode(), "--attach", str(photo))
    assert (code, told) == (0, "")
    assert [images(body) for body in service.stub.requests] == [
        [data_uri(PNG)], [data_uri(PNG)], [data_uri(PNG), ADDRESS]
    ]  # fmt: skip
    assert "attached to the next message: lake.jpg; /attach off removes it" in out
    assert "nothing is attached to the next message" in out
    assert "And this? [attached: lake.jpg (image/jpeg)]" in out


async def test_a_piped_line_may_not_name_a_file(environment: dict[str, str], service: Service, tmp_path: Path) -> None:
    photo = written(tmp_path, "lake.png", PNG)
    code, out, told = await piped(environment, f"/attach {photo}\nLook.\n".encode())
    assert (code, out) == (0, "Paris.\n")
    assert "/attach takes a file only at a terminal" in told
    assert images(service.stub.requests[0]) == []
