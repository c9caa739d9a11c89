"""The example clients in Rust, TypeScript and curl on a sidecar that is killed, and the page that shows them."""

import json
import os
import re
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, get_args

import pytest
import pytest_asyncio

from support.example_clients import (
    CURL_CHAT,
    RUST_CHAT,
    SERVE,
    TYPESCRIPT_CHAT,
    Sidecar,
    client,
    curl_chat,
    plain,
    talk,
    tool_rows,
    typescript_chat,
)
from support.example_hosts import rust_command
from support.pages import DOCS, Block, blocks, rows
from support.processes import eventually
from worldagent.hosts.service.call import OwnCode, Refused
from worldagent.hosts.service.records import Status

pytestmark = [
    pytest.mark.requirement("T4", "T10"),
    pytest.mark.timeout(300),
]  # several processes one after the other, each of which loads a model library

COUNT = "one two three four five six seven eight nine ten eleven twelve"
MAY_IT = '[may it call {}pay{} with {{"what":"hat"}}? y or n]'


@pytest.fixture(scope="module")
def rust(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return [*rust_command(tmp_path_factory.mktemp("rust"), RUST_CHAT, "sidecar-chat"), *SERVE, "--stdio"]


@pytest_asyncio.fixture
async def sidecar(tmp_path: Path) -> AsyncGenerator[Sidecar]:
    """A sidecar over HTTP."""
    (tmp_path / "home").mkdir()
    async with Sidecar(tmp_path / "home") as running:
        yield running


# --- Rust, over stdio -------------------------------------------------------------------------------------------------


async def test_the_chat_in_rust_continues_after_its_sidecar_was_killed(rust: list[str], tmp_path: Path) -> None:
    async with client(rust, tmp_path, SHOP_PACE="0.15") as chat:
        await chat.types("count to twelve")
        await chat.sees("one two three")
        [running] = chat.children
        running.kill()
        await chat.sees("[the sidecar is gone; starting another]", f"\n{COUNT}\n")
        await chat.types("buy a hat")
        await chat.sees(MAY_IT.format('"', '"'))
        [running] = chat.children
        running.kill()
        await chat.sees("[the sidecar is gone; starting another]")
        await chat.types("Yes")
        await chat.sees("\nIt is yours.\n")
        assert await chat.ends() == 0
    assert "was cut off" not in chat.said


async def test_the_chat_in_rust_asks_cancels_and_ends_its_sidecar(rust: list[str], tmp_path: Path) -> None:
    async with client(rust, tmp_path, SHOP_PACE="0.15") as chat:
        await chat.types("buy a hat")
        await chat.sees(MAY_IT.format('"', '"'))
        await chat.types("n")
        await chat.sees("\nThen not.\n")
        await chat.types("count to twelve")
        await chat.sees("one two")
        await chat.types("/cancel")
        await chat.sees("\n[cancelled]\n")
        assert "twelve" not in chat.said
        await chat.types("buy a coat")
        await chat.sees("? y or n]")
        [running] = chat.children
        assert await chat.ends() == 0
        assert await eventually(lambda: not running.is_running())


async def test_the_chat_in_rust_does_not_start_a_sidecar_for_ever(rust: list[str], tmp_path: Path) -> None:
    async with client([rust[0], *SERVE[:3], "worldagent.hosts.no_such_module"], tmp_path) as chat:
        await chat.types("count to twelve")
        await chat.sees("the sidecar ends as soon as it is started")
        assert await chat.ends() == 1


# --- TypeScript and curl, over HTTP -----------------------------------------------------------------------------------


async def test_typescript_chat_misses_nothing_when_its_connection_breaks(sidecar: Sidecar, tmp_path: Path) -> None:
    async with client(typescript_chat(sidecar.url), tmp_path) as chat:
        await chat.types("count to twelve")
        for number in ("two", "five", "eight"):
            await chat.sees(number)
            sidecar.cut()
            await chat.sees("[the sidecar cannot be reached; trying again]\n")
        await chat.sees("twelve\n")
        assert plain(chat.said) == COUNT
        assert await chat.ends() == 0


async def test_the_chat_in_typescript_continues_after_its_sidecar_was_killed(sidecar: Sidecar, tmp_path: Path) -> None:
    async with client(typescript_chat(sidecar.url), tmp_path) as chat:
        await chat.types("count to twelve")
        await chat.sees("one two three")
        await sidecar.kill()
        await chat.sees("[the sidecar cannot be reached; trying again]\n")
        await sidecar.start()
        await chat.sees(f"\n{COUNT}\n")
        await chat.types("buy a hat")
        await chat.sees(MAY_IT.format("", ""))
        await sidecar.kill()
        await sidecar.start()
        await chat.types("/say a blue one")
        await chat.sees("\n[said]\n")
        await chat.types("yes")
        await chat.sees("\n[it reads what ana said meanwhile: a blue one]\n", "It is yours.\n")
        await chat.types("count again")
        await chat.sees("one two")
        await chat.types("/cancel")
        await chat.sees("\n[cancelled]\n")
        assert await chat.ends() == 0


async def test_the_conversation_with_curl_reconnects_asks_and_cancels(sidecar: Sidecar, tmp_path: Path) -> None:
    async with client(curl_chat(sidecar.url), tmp_path) as chat:
        await chat.sees("> count to twelve\n", "[disconnected after event 4, and back]\n", "[done]\n", "> buy a hat\n")
        assert plain(chat.said).startswith(f"> count to twelve {COUNT} > buy a hat")
        await chat.sees("[may it call pay? y or n]\n")
        await chat.types("YES")
        await chat.sees("It is yours.", "[done]\n")
        await chat.sees("> count again\n", "one two", "[cancelled]\n")
        assert await chat.ends() == 0


async def test_curl_conversation_continues_after_its_sidecar_was_killed(sidecar: Sidecar, tmp_path: Path) -> None:
    async with client(curl_chat(sidecar.url), tmp_path) as chat:
        await chat.sees("[disconnected after event 4, and back]\n", "six")
        await sidecar.kill()
        await sidecar.start()
        await chat.sees(f"\n{COUNT}\n[done]\n")


async def test_curl_conversation_ends_if_address_or_token_is_wrong(sidecar: Sidecar, tmp_path: Path) -> None:
    async with client(curl_chat(sidecar.url.removesuffix("/mcp") + "/health"), tmp_path) as chat:
        assert await chat.ends() == 1
    assert chat.said.startswith("> count to twelve\n\n[{"), chat.said
    assert '"method_not_allowed"' in chat.said
    assert chat.said.count('"remedy"') == 1
    async with client(curl_chat(sidecar.url), tmp_path, WORLDAGENT_SIDECAR_TOKEN="another") as chat:
        assert await chat.ends() == 1
    assert chat.said.count("`Authorization: Bearer TOKEN`") == 1


# --- the page ---------------------------------------------------------------------------------------------------------


PAGE = DOCS / "reference" / "sidecar.md"
TALKS = [block for block in blocks("text") if block.page == PAGE]
SOURCES = {
    "rust": RUST_CHAT / "src" / "main.rs",
    "typescript": TYPESCRIPT_CHAT / "chat.ts",
    "bash": CURL_CHAT / "conversation.sh",
}


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


@pytest.mark.parametrize("shown", TALKS, ids=str)
async def test_a_conversation_of_the_page_is_what_a_sidecar_says(shown: Block, tmp_path: Path) -> None:
    async with talk(tmp_path / "home") as sidecar:
        for row in shown.code.splitlines():
            if row.startswith("> "):
                await sidecar.say(row[2:])
            else:
                said: dict[str, Any] = json.loads(row[2:])
                assert await sidecar.hear() == said


async def test_the_client_with_tasks_prints_what_the_page_says(tmp_path: Path) -> None:
    [shown] = [block for block in blocks("python") if block.page == PAGE]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    async with client([sys.executable, "-P", "-c", shown.code], tmp_path, PATH=path) as running:
        assert await running.ends() == 0, running.said
    assert running.said.splitlines() == re.findall(r"^# -> (.*)$", shown.code, re.MULTILINE)


def test_the_table_of_tools_is_what_the_schemas_say() -> None:
    assert rows(PAGE, "tool") == tool_rows()


def test_the_table_of_errors_has_every_code_of_the_sidecars_own() -> None:
    shown = {row.split("|")[1].strip(" `"): row.split("|")[2].strip() for row in rows(PAGE, "code")}
    codes: dict[OwnCode, str] = {code: "" for code in get_args(OwnCode) if code != "unknown_tool"}  # of the protocol
    assert shown == {code: "yes" if Refused(code, "", remedy="").retryable else "no" for code in codes}


def test_the_table_of_statuses_has_every_status() -> None:
    shown = re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in rows(PAGE, "`status`")))
    assert sorted(shown) == sorted({*get_args(Status), "forked"})  # the last is of threads alone
