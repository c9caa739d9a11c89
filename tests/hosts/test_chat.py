"""`worldagent chat` as people use it: at a real terminal, against a chat service over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import stat
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from support import openai_stub as stubs
from support.house import ROOT
from support.mcp_hosts import HostProcess
from support.openai_stub import OpenAIStub, openai_stub
from support.terminal import ALT_ENTER, CTRL_C, CTRL_D, ENTER, TAB, UP, Terminal
from worldagent.core import Tier
from worldagent.role_resolution import Role, SqliteRoleStore
from worldagent.testing import assert_no_role_leak

SECRET = "Answer as the keeper of the seventh lighthouse would answer."
COMMAND = (sys.executable, "-P", "-m", "worldagent.hosts.cli", "chat")
CHAT = (*COMMAND, "--lm", "openai/answer")
BOUND = 90  # seconds
FOREIGN = ("TERM", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "PROMPT_TOOLKIT_")

Start = Callable[..., AbstractAsyncContextManager[Terminal]]


class Service:
    """The chat service: what it says next, piece by piece, and what it was asked.

    Attributes:
        stub: The server.
        answers: The replies to come, as pieces; between two it waits for `go_on`. When none is left it says `Paris.`.
        go_on: Lets it go on.
        gone: Set when the caller went away meanwhile.
    """

    def __init__(self, stub: OpenAIStub) -> None:
        self.stub = stub
        self.answers: list[tuple[str, ...]] = []
        self.go_on = asyncio.Event()
        self.gone = asyncio.Event()
        self.readers: dict[asyncio.StreamWriter, asyncio.StreamReader] = {}

    def asked(self, at: int = -1) -> str:
        """All that a request told the model."""
        return "\n".join(message["content"] for message in self.stub.requests[at]["messages"])

    def said(self, at: int = -1) -> str:
        """The last message of a request, which is what the person said."""
        text: str = self.stub.requests[at]["messages"][-1]["content"]
        return text

    async def stream(self, writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        pieces = self.answers.pop(0) if self.answers else ("Paris.",)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number, piece in enumerate(("[[ ## reply ## ]]\n" + pieces[0], *pieces[1:])):
            if number:
                await self._going_on(writer)
            last = "\n\n[[ ## completed ## ]]" if number == len(pieces) - 1 else ""
            delta = {"index": 0, "delta": {"role": "assistant", "content": piece + last}, "finish_reason": None}
            stubs._chunk(writer, {"id": "c", "object": "chat.completion.chunk", "model": "x", "choices": [delta]})
            await writer.drain()
        end = {"index": 0, "delta": {}, "finish_reason": "stop"}
        stubs._chunk(writer, {"id": "c", "object": "chat.completion.chunk", "model": "x", "choices": [end]})
        stubs._raw_chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")

    async def _going_on(self, writer: asyncio.StreamWriter) -> None:
        """Wait for the word, or for the caller to hang up."""
        going = asyncio.ensure_future(self.go_on.wait())
        closed = asyncio.ensure_future(self.readers[writer].read(1))
        await asyncio.wait({going, closed}, return_when=asyncio.FIRST_COMPLETED)
        self.go_on.clear()
        going.cancel()
        if closed.done():
            self.gone.set()
            raise ConnectionError
        closed.cancel()
        await asyncio.wait({closed})


@pytest_asyncio.fixture
async def service(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Service, None]:
    async with openai_stub() as stub:
        running = Service(stub)
        serve = OpenAIStub.serve

        async def noted(self: OpenAIStub, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            running.readers[writer] = reader
            await serve(self, reader, writer)

        monkeypatch.setattr(OpenAIStub, "serve", noted)
        monkeypatch.setattr(OpenAIStub, "_stream", lambda _, writer, body: running.stream(writer, body))
        yield running


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def environment(service: Service, home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return kept | {
        "PYTHONPATH": str(ROOT / ".dev"),
        "WORLDAGENT_HOME": str(home),
        "WORLDAGENT_API_BASE": service.stub.url,
        "WORLDAGENT_MODEL_ATTEMPTS": "1",
        "OPENAI_API_KEY": "key-of-a-test",
    }


@pytest.fixture
def start(environment: dict[str, str]) -> Start:
    """Start a chat at a terminal of 80 by 24, and wait until it is loaded."""

    @asynccontextmanager
    async def chat(
        *words: str, argv: tuple[str, ...] = CHAT, loaded: bool = True, **more: str
    ) -> AsyncGenerator[Terminal, None]:
        async with Terminal([*argv, *words], env=environment | more) as terminal:
            if loaded:
                await terminal.shows("\nmodel ")
                await terminal.prompt()
            yield terminal

    return chat


async def piped(environment: dict[str, str], stdin: bytes, *words: str) -> tuple[int | None, str, str]:
    """Run a chat whose streams are pipes, to its end."""
    process = await asyncio.create_subprocess_exec(
        *CHAT,
        *words,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, told = await asyncio.wait_for(process.communicate(stdin), BOUND)
    return process.returncode, out.decode(), told.decode()


# --- answers --------------------------------------------------------------------------------------------------------


async def test_it_says_where_the_person_is_answers_and_leaves_the_terminal_as_it_was(start: Start) -> None:
    async with start() as terminal:
        assert await terminal.say("What is the capital of France?") == "Paris."
        terminal.write("/quit" + ENTER)
        assert await terminal.ended() == 0
        assert terminal.modes() == terminal.before
    assert terminal.lines[:7] == [
        "worldagent chat: workspace default, thread main",
        "/help lists the commands, Ctrl-D leaves.",
        "model openai/answer",
        "main> What is the capital of France?",
        "Paris.",
        "",
        "main> /quit",
    ]


async def test_an_answer_appears_while_it_is_written_and_breaks_between_words(start: Start, service: Service) -> None:
    word, wide = "lighthouse ", "灯台の光が海を照らしている。"
    code = "\n```\n" + "x " * 50 + "\n```\nDone."
    service.answers = [(word * 60, "\x1b[2Jand the end, my friends. ", f"\n{wide * 6}", code)]
    async with start() as terminal:
        await terminal.prompt()
        terminal.write("Tell me." + ENTER)
        first = await terminal.shows(word * 6)
        assert "the end" not in first
        service.go_on.set()
        await terminal.shows("[2Jand the end, my")  # the escape character is gone
        service.go_on.set()
        await terminal.shows("海を照らし")
        service.go_on.set()
        await terminal.shows("Done.")
        lines = (await terminal.prompt()).splitlines()[4:]
    prose = [line for line in lines if line.startswith("lighthouse")]
    assert len(prose) >= 9
    assert {*" ".join(prose).split()} <= {"lighthouse", "[2Jand", "the", "end,", "my", "friends."}  # none is broken
    assert all(len(line) <= 80 for line in lines)
    assert wide * 6 in "".join(lines)
    assert not any(line.startswith("。") for line in lines)
    assert ("x " * 40).strip() in [line.strip() for line in lines]  # code is left as it is


async def test_what_is_typed_during_an_answer_waits_for_the_prompt(start: Start, service: Service) -> None:
    service.answers = [("The lamp is lit, ", "and the ships are home.")]
    async with start() as terminal:
        await terminal.prompt()
        terminal.write("Go on." + ENTER)
        await terminal.shows("The lamp is")
        terminal.write("And then?")
        service.go_on.set()
        shown = await terminal.shows("main> And then?")
        assert "The lamp is lit, and the ships are home." in shown
        assert shown.count("And then?") == 1


async def test_a_wait_is_shown_and_leaves_no_trace(start: Start, service: Service) -> None:
    service.answers = [("", "The lamp is lit.")]
    async with start() as terminal:
        await terminal.prompt()
        terminal.write("Go on." + ENTER)
        await terminal.shows("waiting")
        service.go_on.set()
        await terminal.shows("The lamp is lit.")
        assert "waiting" not in await terminal.prompt()


async def test_work_that_was_handed_on_is_told_in_a_line(start: Start, service: Service) -> None:
    plan = json.dumps([{"to": "critic", "request": "Judge this."}])
    service.answers = [("I shall ask.\n\n[[ ## dispatches ## ]]\n" + plan,)]
    service.stub.text = "[[ ## result ## ]]\nIt is good.\n\n[[ ## completed ## ]]"
    async with start("--worker", "critic=You judge in one sentence.") as terminal:
        shown = await terminal.say("Is it good?")
    assert shown == "I shall ask.\nworking on it: critic\nParis."


async def test_a_model_that_fails_is_told_with_its_remedy_and_the_chat_goes_on(start: Start, service: Service) -> None:
    async with start(argv=(*COMMAND, "--lm", "openai/down-500")) as terminal:
        shown = await terminal.say("Hello")
        assert "error: the model 'openai/down-500'" in shown
        assert "\nremedy: " in shown
        assert "Traceback" not in shown
        assert "error: " in await terminal.say("Hello again")


async def test_a_mistake_in_the_settings_ends_it_with_2_though_the_prompt_is_there(start: Start) -> None:
    async with start(loaded=False, WORLDAGENT_ROLE_LIMIT="none") as terminal:
        await terminal.shows("error:", "role_limit", "remedy:")
        assert await terminal.ended() == 2
        assert terminal.modes() == terminal.before


# --- leaving and interrupting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("keys", "code"), [("/quit" + ENTER, 0), (CTRL_D, 0)])
async def test_it_is_left_by_command_or_key(start: Start, keys: str, code: int) -> None:
    async with start() as terminal:
        await terminal.prompt()
        terminal.write(keys)
        assert await terminal.ended() == code
        assert terminal.modes() == terminal.before


async def test_an_interrupt_clears_a_line_then_says_how_to_leave_then_leaves(start: Start) -> None:
    async with start() as terminal:
        terminal.write("half a thought")
        await terminal.shows("half a thought")
        terminal.write(CTRL_C)
        await terminal.prompt()
        assert "half a thought" not in terminal.text
        terminal.write(CTRL_C)
        await terminal.shows("Ctrl-C again leaves, so do Ctrl-D and /quit.")
        assert await terminal.say("Still here?") == "Paris."
        terminal.write(CTRL_C)
        await terminal.until(lambda: terminal.text.count("Ctrl-C again leaves") == 2)
        await terminal.prompt()
        terminal.write("x")  # something was typed, so the next one is the first again
        await terminal.shows("main> x")
        terminal.write("\x7f")
        await terminal.prompt()
        terminal.write(CTRL_C)
        await terminal.until(lambda: terminal.text.count("Ctrl-C again leaves") == 3)
        await terminal.prompt()
        terminal.write(CTRL_C)
        assert await terminal.ended() == 130
        assert terminal.modes() == terminal.before


async def test_an_interrupt_cancels_the_answer_and_the_thread_goes_on(start: Start, service: Service) -> None:
    service.answers = [("The lamp is lit, ", "and never seen.")]
    async with start() as terminal:
        await terminal.prompt()
        terminal.write("Tell me." + ENTER)
        await terminal.shows("The lamp is")
        terminal.write(CTRL_C)
        await terminal.shows("cancelled")
        await asyncio.wait_for(service.gone.wait(), BOUND)
        assert await terminal.say("And now?") == "Paris."
    assert "never seen" not in terminal.text
    assert "Tell me." in service.asked()  # what was said stays said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_it_in_order(start: Start, service: Service, number: signal.Signals) -> None:
    service.answers = [("The lamp is lit, ", "and never seen.")]
    async with start() as terminal:
        await terminal.prompt()
        terminal.write("Tell me." + ENTER)
        await terminal.shows("The lamp is")
        terminal.process.send_signal(number)
        assert await terminal.ended() == 128 + number
        assert terminal.modes() == terminal.before
    assert "Traceback" not in terminal.text


async def test_a_signal_at_the_prompt_restores_the_terminal(start: Start) -> None:
    async with start() as terminal:
        terminal.process.terminate()
        assert await terminal.ended() == 143
        assert terminal.modes() == terminal.before


@pytest.mark.parametrize("midway", [False, True])
async def test_a_terminal_that_is_closed_ends_it(start: Start, service: Service, midway: bool) -> None:
    service.answers = [("The lamp is lit, ", "and never seen.")]
    async with start() as terminal:
        if midway:
            terminal.write("Tell me." + ENTER)
            await terminal.shows("The lamp is")
        terminal.hang_up()
        assert await terminal.ended() in (0, 129)


# --- roles ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R5", "R7")
async def test_a_call_role_goes_with_every_message_until_it_is_off_and_is_kept_nowhere(
    start: Start, service: Service, home: Path, tmp_path: Path
) -> None:
    async with start() as terminal:
        told = await terminal.say(f"/role {SECRET}")
        assert told == "call role set, 60 characters; it goes with every message until /role off"
        assert await terminal.say("One") == "role: call\nParis."
        assert await terminal.say("Two") == "role: call\nParis."
        for at in (0, 1):
            assert f"[[ ## role ## ]]\n{SECRET}" in service.said(at)
        assert SECRET in (await terminal.say("/role")).splitlines()
        assert SECRET not in " ".join(psutil.Process(terminal.process.pid).cmdline())
        assert await terminal.say("/role off") == "the call role is off"
        assert await terminal.say("Three") == "Paris."
        assert "role" not in service.said().replace("assistant", "")
        assert SECRET not in service.asked()
        terminal.write(f"/rol {SECRET}" + ENTER)  # mistyped
        await terminal.shows("there is no command '/rol'")
        await terminal.prompt()
        terminal.write(f"  /role  {SECRET}" + ENTER)
        await terminal.until(lambda: terminal.text.count("call role set") == 2)
        await terminal.prompt()
        terminal.write(UP)
        await terminal.shows("main> Three")  # neither the role nor the mistyped one is offered again
        terminal.write(CTRL_C)
        assert_no_role_leak([home], SECRET)  # also while it is set
        terminal.write(CTRL_D)
        assert await terminal.ended() == 0
    assert_no_role_leak([home, tmp_path], SECRET)
    assert "Three" in (home / "chat-history.jsonl").read_text(encoding="utf-8")


async def test_a_role_comes_from_a_file_or_the_command_line(start: Start, service: Service, tmp_path: Path) -> None:
    file = tmp_path / "lighthouse.md"
    file.write_text(SECRET, encoding="utf-8")
    async with start("--role", "Be brief.") as terminal:
        assert "role: call" in await terminal.say("Hello")
        assert "[[ ## role ## ]]\nBe brief." in service.said()
        assert "60 characters" in await terminal.say(f"/role @{file}")
        await terminal.say("Hello")
        assert f"[[ ## role ## ]]\n{SECRET}" in service.said()
        assert "'no-such-file'" in await terminal.say("/role @no-such-file")
        assert "error:" in await terminal.say("/role -")
        assert "role: call" in await terminal.say("The one before still counts?")


async def test_stored_roles_and_their_order_are_shown(start: Start, home: Path) -> None:
    home.mkdir()
    store = await SqliteRoleStore.open(home / "roles.db", limit=32 * 1024)
    await store.put(Tier.WORKSPACE, "default", Role("house style", "Answer politely."))
    await store.put(Tier.ACCOUNT, "ana", Role("灯台", "Answer in French."))
    await store.aclose()
    async with start("--account", "ana") as terminal:
        assert await terminal.say("Hello") == "role: account, workspace\nParis."
        table = (await terminal.say("/roles")).splitlines()
        assert [line.split() for line in table] == [
            ["TIER", "SCOPE", "NAME", "BYTES"],
            ["workspace", "default", "house", "style", "16"],
            ["account", "ana", "灯台", "17"],
        ]
        await terminal.say(f"/role {SECRET}")
        why = await terminal.say("/why")
    rows = [line.split()[:2] for line in why.splitlines()[1:6]]
    assert rows == [
        ["account", "active"],
        ["workspace", "active"],
        ["channel", "-"],
        ["thread", "-"],
        ["call", "active"],
    ]
    assert why.splitlines()[-1] == "Where active roles conflict, the later in this list wins."
    assert all(len(line) <= 80 for line in terminal.lines)
    assert "polite" not in terminal.text


@pytest.mark.requirement("R14")
async def test_a_role_host_that_goes_down_fails_turns_until_it_is_back(
    start: Start, service: Service, tmp_path: Path
) -> None:
    uncached = {"WORLDAGENT_ROLE_CACHE_TTL": "0"}
    async with HostProcess(tmp_path) as host, start("--role-host", host.url, **uncached) as terminal:
        await terminal.shows(f"model openai/answer, roles at {host.url}")
        assert await terminal.say("Hello") == "Paris."
        await host.kill()
        before = len(service.stub.requests)
        shown = await terminal.say("Are you there?")
        assert "error: " in shown
        assert "workspace" in shown
        assert "remedy: " in shown
        assert len(service.stub.requests) == before
        await host.start()
        async with asyncio.timeout(BOUND):
            while await terminal.say("And now?") != "Paris.":
                pass


@pytest.mark.requirement("R14")
async def test_a_role_host_that_is_down_at_the_start_is_told_and_the_chat_waits_for_it(
    start: Start, tmp_path: Path
) -> None:
    host = HostProcess(tmp_path)
    async with start("--role-host", host.url) as terminal:
        await terminal.shows("error: ", "remedy: ", "Messages get no answer until the role host is back.")
        assert "remedy: " in await terminal.say("Hello")
        await host.start()
        try:
            async with asyncio.timeout(BOUND):
                while await terminal.say("And now?") != "Paris.":
                    pass
        finally:
            await host.kill()


# --- commands and input ---------------------------------------------------------------------------------------------


async def test_threads_and_their_history(start: Start, service: Service) -> None:
    async with start() as terminal:
        assert await terminal.say("/history") == "nothing was said on the thread 'main'"
        await terminal.say("What is the capital of France?")
        assert await terminal.say("/thread") == "on the thread 'main' of the workspace 'default'"
        await terminal.say("/thread novel", then="novel>")
        await terminal.say("Who are you?", prompt="novel>")
        assert "France" not in service.asked()
        shown = await terminal.say("/history", prompt="novel>")
        assert shown == "user: Who are you?\n\nagent: Paris."
        assert await terminal.say("/history 1", prompt="novel>") == "agent: Paris."
        for wrong in ("/history none", "/history 0", "/history 1001"):
            assert "give 1 to 1000" in await terminal.say(wrong, prompt="novel>")
        assert "error:" in await terminal.say("/thread " + "x" * 2000, prompt="novel>")
        await terminal.say("/thread main", prompt="novel>", then="main>")
        assert "France" in await terminal.say("/history")


async def test_an_unknown_command_is_named_with_the_nearest_and_not_sent(start: Start, service: Service) -> None:
    async with start() as terminal:
        shown = " ".join((await terminal.say("/histroy 3")).split())
        assert shown.startswith("error: there is no command '/histroy', and nothing was sent")
        assert "the nearest is /history" in shown
        assert "takes nothing" in await terminal.say("/why not")
        for name in ("/role", "/roles", "/why", "/history", "/thread", "/help", "/quit", "Alt-Enter"):
            assert name in await terminal.say("/help")
        assert service.stub.requests == []
        assert await terminal.say("//etc/hosts, what is it?") == "Paris."
        assert "/etc/hosts, what is it?" in service.said()
        assert "//etc" not in service.said()


async def test_several_lines_are_one_message(start: Start, service: Service) -> None:
    async with start() as terminal:
        terminal.write("one" + ALT_ENTER + "two\\" + ENTER + "three" + ENTER)
        await terminal.shows("Paris.")
        assert "one\ntwo\nthree" in service.said()
        await terminal.prompt()
        terminal.paste("four\nfive\n\nsix")
        await terminal.shows("six")
        terminal.write(ENTER)
        await terminal.until(lambda: terminal.text.count("Paris.") == 2)
        await terminal.prompt()
        assert "four\nfive\n\nsix" in service.said()
        assert len(service.stub.requests) == 2
        terminal.paste("/usr/bin/thing: an error\nand more of it")
        terminal.write(ENTER)
        await terminal.shows("there is no command '/usr/bin/thing:'", "main> /usr/bin/thing:", "and more of it")
        assert len(service.stub.requests) == 2  # and it is given back for a correction


async def test_the_history_of_input_outlives_the_chat_and_is_for_its_owner_only(start: Start, home: Path) -> None:
    async with start() as terminal:
        await terminal.say("first")
        await terminal.say("second\\" + ENTER + "line")
        await terminal.say("/why")
        terminal.write(CTRL_D)
        await terminal.ended()
    file = home / "chat-history.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with file.open("ab") as more:
        more.write(b'not JSON\n{"a": 1}\n"cut off')
    async with start() as terminal:
        terminal.write(UP)
        await terminal.shows("main> /why")
        terminal.write(UP)
        await terminal.shows("main> second", "      line")
        terminal.write(UP + UP)
        await terminal.shows("main> first")
        terminal.write(ENTER)
        await terminal.shows("Paris.")


async def test_commands_are_completed(start: Start) -> None:
    async with start() as terminal:
        terminal.write("/hi" + TAB)
        await terminal.shows("main> /history")
        terminal.write(CTRL_C)
        await terminal.prompt()
        terminal.write("/r" + TAB)
        await terminal.shows("/role ", "the stored roles of workspace")


@pytest.mark.parametrize("more", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
async def test_it_works_without_colour_and_at_a_terminal_that_can_do_nothing(
    start: Start, service: Service, more: dict[str, str]
) -> None:
    async with start("--role", "Be brief.", **more) as terminal:
        assert (await terminal.say("Hello")).endswith("role: call\nParis.")
        assert "error: " in await terminal.say("/hlep")
        terminal.write("one\\" + ENTER + "two" + ENTER)
        await terminal.until(lambda: terminal.text.count("Paris.") == 2)
        assert "one\ntwo" in service.said()
        service.answers = [("The lamp is lit, ", "and never seen.")]
        await terminal.prompt()
        terminal.write("Tell me." + ENTER)
        await terminal.shows("The lamp is")
        terminal.write(CTRL_C)
        await terminal.shows("cancelled")
        await terminal.prompt()
        terminal.write(CTRL_C)
        await terminal.shows("Ctrl-C again leaves")
        await terminal.prompt()
        terminal.write(CTRL_C)
        assert await terminal.ended() == 130
        assert terminal.modes() == terminal.before
    coloured = [code for code in escapes(terminal.raw) if code.startswith(("3", "4", "9", "10"))]
    assert coloured == []
    if "TERM" in more:
        assert b"\x1b" not in terminal.raw


def escapes(raw: bytearray) -> Iterator[str]:
    """The parameters of every sequence that sets colours or style."""
    for found in re.finditer(rb"\x1b\[([0-9;]*)m", raw):
        yield from found[1].decode().split(";")


# --- without a terminal ---------------------------------------------------------------------------------------------


async def test_piped_lines_are_messages_and_answers_are_all_that_is_printed(
    environment: dict[str, str], service: Service
) -> None:
    code, out, told = await piped(environment, "\ufeffHello\r\n\nAnd again: 灯台".encode())
    assert (code, out, told) == (0, "Paris.\nParis.\n", "")
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
    assert [value.get("role_tiers") for value in found] == [None, ["call"], None, None, []]
    assert found[2]["error"]["code"] == "invalid_argument"
    assert found[1]["text"] == found[4]["text"] == "Paris."
    assert len(service.stub.requests) == 2


async def test_piped_input_fails_with_1_where_the_last_message_failed(
    environment: dict[str, str], service: Service
) -> None:
    code, out, told = await piped(environment, b"/nothing\nHello")
    assert (code, out) == (0, "Paris.\n")
    assert told.startswith("error: there is no command '/nothing'")
    code, out, told = await piped(environment, b"Hello\n\xff\n/quit\n")
    assert (code, out) == (1, "Paris.\n")
    assert "error: line 2 is not UTF-8 at byte 0" in told
    code, out, told = await piped(environment, b"Hello\n", "--json", "--lm", "openai/down-500")
    assert (code, told) == (1, "")
    assert json.loads(out)["error"]["code"] == "model_unavailable"


async def test_piped_input_is_interrupted_with_130_though_nothing_was_read(environment: dict[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *CHAT, env=environment, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"Hello\n")
        assert await asyncio.wait_for(process.stdout.readline(), BOUND) == b"Paris.\n"
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), BOUND) == 130
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_piped_chat_that_is_interrupted_in_an_answer_ends_with_it(
    environment: dict[str, str], service: Service
) -> None:
    service.answers = [("The lamp is lit, ", "and never seen.")]
    process = await asyncio.create_subprocess_exec(
        *CHAT, "--json", env=environment, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdin is not None
        process.stdin.write(b"Tell me.\nAnd again.\n")
        await asyncio.wait_for(service.stub.arrived.wait(), BOUND)
        process.send_signal(signal.SIGINT)
        out, _ = await asyncio.wait_for(process.communicate(), BOUND)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 130
    assert [json.loads(line)["error"]["code"] for line in out.splitlines()] == ["interrupted"]
    assert len(service.stub.requests) == 1


async def test_standard_input_has_one_reader(environment: dict[str, str]) -> None:
    code, _, told = await piped(environment, b"Hello\n", "--role", "-")
    assert code == 2
    assert "both read standard input" in told
