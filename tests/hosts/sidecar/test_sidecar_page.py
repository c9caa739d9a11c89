"""The page about the sidecar: its code is that of the examples, its JSON what a real sidecar says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from support.example_clients import CURL_CHAT, RUST_CHAT, TYPESCRIPT_CHAT, talk, tool_rows
from support.pages import DOCS, Block, blocks, rows
from worldagent.hosts.service.call import OwnCode, Refused
from worldagent.hosts.service.records import Status

PAGE = DOCS / "reference" / "sidecar.md"
TALKS = [block for block in blocks("text") if block.page == PAGE]
SOURCES = {
    "rust": RUST_CHAT / "src" / "main.rs",
    "typescript": TYPESCRIPT_CHAT / "chat.ts",
    "bash": CURL_CHAT / "conversation.sh",
}

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("language", SOURCES)
def test_the_code_of_the_page_is_that_of_the_example(language: str) -> None:
    [shown] = [block for block in blocks(language) if block.page == PAGE]
    source = flat(SOURCES[language].read_text(encoding="utf-8"))
    parts = re.split(r"\n\n(?=\S)", shown.code)  # functions, which are not next to each other in the file
    assert len(parts) > 2
    assert [part for part in parts if flat(part) not in source] == []


def flat(code: str) -> str:
    """Code without the blanks at the beginning of its lines."""
    return "\n".join(line.strip() for line in code.strip().splitlines())


@pytest.mark.requirement("T10")
@pytest.mark.parametrize("shown", TALKS, ids=str)
async def test_a_conversation_of_the_page_is_what_a_sidecar_says(shown: Block, tmp_path: Path) -> None:
    async with talk(tmp_path / "home") as sidecar:
        for row in shown.code.splitlines():
            if row.startswith("> "):
                await sidecar.say(row[2:])
            else:
                said: dict[str, Any] = json.loads(row[2:])
                assert await sidecar.hear() == said


def test_the_table_of_tools_is_what_the_schemas_say() -> None:
    assert rows(PAGE, "tool") == tool_rows()


def test_the_table_of_errors_has_every_code_of_the_sidecars_own() -> None:
    shown = {row.split("|")[1].strip(" `"): row.split("|")[2].strip() for row in rows(PAGE, "code")}
    codes: dict[OwnCode, str] = {code: "" for code in get_args(OwnCode) if code != "unknown_tool"}  # of the protocol
    assert shown == {code: "yes" if Refused(code, "", remedy="").retryable else "no" for code in codes}


def test_the_table_of_statuses_has_every_status() -> None:
    shown = re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in rows(PAGE, "`status`")))
    assert sorted(shown) == sorted({*get_args(Status), "forked"})  # the last is of threads alone
