"""The example role hosts in TypeScript and Rust: each holds the contract, in few lines, and survives odd input."""

import asyncio
import json
import re
import shlex
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.example_clients import RUST_CHAT, TYPESCRIPT_CHAT
from support.example_hosts import (
    HELLO,
    NODE,
    RUST,
    TYPESCRIPT,
    conversation,
    rust_command,
    rust_in_standard_form,
    typescript_command,
)
from support.pages import DOCS, Block, blocks
from support.processes import clean_environment
from support.role_hosts import BOUND, opened
from worldagent import Role, Tier
from worldagent.core.errors import HostForbidden
from worldagent.hosts.cli.app import app
from worldagent.mcp_client import HttpHost

TOKEN = "token-of-the-example"
EXCHANGES = [block for block in blocks("text") if block.page == DOCS / "reference" / "role-host.md"]


@pytest.fixture(scope="module")
def rust(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return rust_command(tmp_path_factory.mktemp("rust"))


@pytest.fixture(params=["typescript", "rust"])
def command(request: pytest.FixtureRequest) -> list[str]:
    """The argv of one of the examples."""
    given: list[str] = typescript_command() if request.param == "typescript" else request.getfixturevalue("rust")
    return given


@contextmanager
def over_http(scopes: str = "*") -> Generator[str]:
    """Run the example in TypeScript on a free port, and give its address."""
    process = subprocess.Popen(
        [*typescript_command(), "--http", "0"],
        env=clean_environment(ROLE_HOST_TOKEN=TOKEN, ROLE_HOST_SCOPES=scopes),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:"), "the host did not start"
        yield url
    finally:
        process.kill()
        process.communicate(timeout=BOUND)


def skipped_by_doctor(*options: str) -> set[str]:
    """Check a host, which must be sound; give the points that were skipped."""
    words = ["doctor", *options, "--write", "--json"]
    done = CliRunner().invoke(app, words, env={"WORLDAGENT_ROLE_HOST_TOKEN": TOKEN})
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["ok"] is True
    assert {point["status"] for point in report["points"]} == {"pass", "skip"}, done.stdout
    return {point["id"] for point in report["points"] if point["status"] == "skip"}


# --- the contract -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R9")
def test_doctor_finds_nothing_wrong_over_stdio(command: list[str]) -> None:
    assert skipped_by_doctor("--role-host-stdio", shlex.join(command)) == {"scope.forbidden", "change.notice"}


@pytest.mark.requirement("R9")
def test_doctor_finds_nothing_wrong_over_http() -> None:
    with over_http() as url:
        assert skipped_by_doctor("--role-host", url) == {"scope.forbidden", "change.notice"}


@pytest.mark.requirement("R9")
async def test_a_token_over_http_reaches_its_scopes_and_no_other() -> None:
    with over_http("workspace/novel account/ana") as url:
        async with opened(HttpHost(url, TOKEN, timeout=30)) as store:
            await store.put(Tier.ACCOUNT, "ana", Role("x", "y"))
            for attempt in (
                store.put(Tier.ACCOUNT, "bo", Role("x", "y")),
                store.get(Tier.WORKSPACE, "ana"),
                store.delete(Tier.CHANNEL, "novel"),
                store.list({Tier.ACCOUNT: "ana", Tier.WORKSPACE: "other"}),
            ):
                with pytest.raises(HostForbidden):
                    await attempt
            assert await store.list({Tier.ACCOUNT: "ana", Tier.WORKSPACE: "novel"}) == {Tier.ACCOUNT: Role("x", "y")}
        async with opened(HttpHost(url, "another")) as store:
            with pytest.raises(HostForbidden):
                await store.list({Tier.ACCOUNT: "ana"})


def test_without_a_token_it_does_not_serve_http() -> None:
    words = [*typescript_command(), "--http", "0"]
    env = clean_environment(ROLE_HOST_TOKEN="")
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=BOUND, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "ROLE_HOST_TOKEN is not set" in done.stderr


@pytest.mark.requirement("R9")
@pytest.mark.parametrize("exchange", EXCHANGES, ids=str)
async def test_conversation_of_the_page_is_true(exchange: Block, command: list[str], tmp_path: Path) -> None:
    async with conversation(command, tmp_path / "errors") as host:
        for row in exchange.code.splitlines():
            said: dict[str, Any] = json.loads(row[2:])
            if row.startswith("> "):
                await host.say(said)
            else:
                assert contract_part(await host.hear()) == contract_part(said)
        assert await host.end() == b""


def contract_part(answer: dict[str, Any]) -> dict[str, Any]:
    """Leave out what differs between hosts: their names, what else they offer, and their words for people."""
    result = {key: value for key, value in answer["result"].items() if key not in OF_ITS_OWN}
    for text in answer["result"].get("content", ()):
        assert text["type"] == "text"
        assert "Answer in French" not in text["text"]
    return {**answer, "result": result}


OF_ITS_OWN = {"capabilities", "instructions", "serverInfo", "content", "_meta"}


# --- odd input --------------------------------------------------------------------------------------------------------

NO_MESSAGES = [
    b"",
    b"garbage",
    b"\xff\xfe\x00",
    b"5",
    b"[]",
    b'{"jsonrpc":"2.0"',
    b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":{},"method":"ping"}',
    b'{"jsonrpc":"2.0","method":"notifications/unheard-of","params":{"x":1}}',
    b"[" * 100_000,
    b"x" * (5 << 20),
]


async def test_invalid_lines_do_not_end_it(command: list[str], tmp_path: Path) -> None:
    async with conversation(command, tmp_path / "errors") as host:
        await host.ask(0, "initialize", **HELLO)
        for number, line in enumerate(NO_MESSAGES):
            await host.say(line)
            assert (await host.ask(f"still there {number}", "ping"))["result"] == {}
        await host.end()
    assert b"panicked" not in (tmp_path / "errors").read_bytes()


# --- what only the one in Rust does itself ----------------------------------------------------------------------------

JSON = (
    *("1", "-0", "-1.5e+10", "1E5", "1e400", "123456789012345678901234567890", "[]", "{}", " [ ] ", "[1,2 , 3]"),
    *('{"a":1,"a":2}', '{ "a" : { } }', '""', r'"\u00e9\ud83d\ude00\/\b\f\n\r\t\"\\"', '"\u2028"', r'"\u0000"'),
    *("[" * 50 + "]" * 50, "[true,false,null]"),
)
NO_JSON = (
    *("", "01", "-", "1.", ".5", "+1", "1e", "1e+", "--1", "nan", "NaN", "inf", "Infinity", "1.5.2", "0x1", "1_0"),
    *("[1,]", "[,1]", '{"a"}', '{"a":}', "{a:1}", "{1:2}", '{"a":1,}', '{["a"]:1}', "[1 2]", "1 2", "[", "{", "tru"),
    *('"', r'"\x"', r'"\u12"', r'"\u+123"', r'"\ud800"', r'"\udc00"', r'"\ud800\u0041"', r'"\ud800x"', '"\t"', "nulll"),
    *("[" * 100 + "]" * 100, "[\u00a0]", "\ufeff1", "[\x0b]"),
)


async def test_the_reader_in_rust_accepts_json_alone(rust: list[str], tmp_path: Path) -> None:
    texts = [*JSON, *NO_JSON]
    async with conversation(rust, tmp_path / "errors") as host:
        lines = [f'{{"jsonrpc":"2.0","id":"x","method":"ping","params":{{"x":{text}}}}}' for text in texts]
        saying = asyncio.create_task(host.say(*(line.encode() for line in lines)))
        answers = [await host.hear() for _ in lines]
        await saying
        await host.end()
    taken = [answer.get("error", {}).get("code") != -32700 for answer in answers]
    assert taken == [True] * len(JSON) + [False] * len(NO_JSON)
    assert (tmp_path / "errors").read_bytes() == b""


# --- the files, with those of the clients of a sidecar ----------------------------------------------------------------


@pytest.mark.parametrize("folder", [TYPESCRIPT, TYPESCRIPT_CHAT], ids=lambda folder: folder.name)
def test_those_in_typescript_pass_the_type_checker_and_are_pinned_without_a_registry(folder: Path) -> None:
    words = [NODE, str(folder / "node_modules" / "typescript" / "bin" / "tsc"), "--project", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=BOUND, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
    lock = json.loads((folder / "package-lock.json").read_text(encoding="utf-8"))
    packages = [package for name, package in lock["packages"].items() if name]
    assert packages
    assert [package for package in packages if "resolved" in package or "integrity" not in package] == []
    wanted = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    for version in (*wanted["dependencies"].values(), *wanted["devDependencies"].values()):
        assert re.fullmatch(r"[\d.]+", version)


@pytest.mark.parametrize("folder", [RUST, RUST_CHAT], ids=lambda folder: folder.name)
def test_those_in_rust_are_in_standard_form_and_need_no_crate(folder: Path) -> None:
    assert rust_in_standard_form(folder)
    assert (folder / "Cargo.lock").read_text(encoding="utf-8").count("[[package]]") == 1
