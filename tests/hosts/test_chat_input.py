"""What is typed at `worldagent chat`: roles, other commands, several lines, its history. A real terminal."""

import asyncio
import json
import stat
from pathlib import Path

import psutil
import pytest

from support.chat import ALT_ENTER, BOUND, CTRL_C, CTRL_D, ENTER, TAB, UP, Start
from support.openai_stub import OpenAIStub
from support.role_hosts import HostProcess
from worldagent.core import Tier
from worldagent.hosts.chat.commands import COMMANDS
from worldagent.hosts.chat.prompt import ENTRIES
from worldagent.role_resolution import Role, SqliteRoleStore
from worldagent.testing import assert_no_role_leak

SECRET = "Answer as the keeper of the seventh lighthouse would answer."


# --- roles ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R7", "R10")
async def test_thread_role_goes_with_messages(start: Start, stub: OpenAIStub, home: Path, tmp_path: Path) -> None:
    async with start(fresh=True) as terminal:  # whose command line says what it was started with
        told = await terminal.say(f"/role {SECRET}")
        assert told == "role of the thread 'main' set, 60 characters; it holds until /role off"
        assert await terminal.say("One") == "role: thread\nParis."
        assert f"[[ ## role ## ]]\n{SECRET}" in stub.said()
        assert SECRET in (await terminal.say("/role")).splitlines()
        assert SECRET not in " ".join(psutil.Process(terminal.process.pid).cmdline())
        assert await terminal.say("/role off") == "the role of the thread 'main' is off"
        assert await terminal.say("Three") == "Paris."
        assert "[[ ## role ## ]]" not in stub.said()
        assert SECRET not in stub.asked()
        terminal.write(f"/rol {SECRET}" + ENTER)  # mistyped
        await terminal.shows("the command '/rol' does not exist")
        await terminal.prompt()
        terminal.write(f"  /role  {SECRET}" + ENTER)
        await terminal.until(lambda: terminal.text.count("'main' set") == 2)
        await terminal.prompt()
        terminal.write(UP)
        await terminal.shows("main> Three")  # neither the role nor the mistyped one is offered again
        terminal.write(CTRL_C)
        assert_no_role_leak([home], SECRET)  # also while it is set
        terminal.write(CTRL_D)
        assert await terminal.ended() == 0
    assert_no_role_leak([home, tmp_path], SECRET)
    assert "Three" in (home / "chat-history.jsonl").read_text(encoding="utf-8")


@pytest.mark.requirement("R5", "R10")
async def test_role_option_applies_until_a_thread_has_a_role(start: Start, stub: OpenAIStub, tmp_path: Path) -> None:
    (file := tmp_path / "role.md").write_text(SECRET, encoding="utf-8")
    async with start("--role", "Be brief.", WORLDAGENT_THREAD_ROLE_TTL="0.001") as terminal:
        assert await terminal.say("Hello") == "role: call\nParis."
        assert "call role of --role, 9 characters" in await terminal.say("/role")
        await terminal.say("/thread novel", then="novel>")
        assert await terminal.say("Hello", prompt="novel>") == "role: call\nParis."
        assert "'no-such-file'" in await terminal.say("/role @no-such-file", prompt="novel>")
        assert "error:" in await terminal.say("/role -", prompt="novel>")
        shown = await terminal.say(f"/role @{file}", prompt="novel>")
        assert " ".join(shown.split()).endswith("it holds until /role off; the call role of --role is off")
        why = (await terminal.say("/why", prompt="novel>")).splitlines()
        assert [line.split()[:2] for line in why[4:6]] == [["thread", "active"], ["call", "-"]]
        assert await terminal.say("Hello", prompt="novel>") == "role: thread\nParis."
        assert SECRET in stub.said()
        assert "Be brief" not in stub.said()
        await terminal.say("/thread main", prompt="novel>", then="main>")
        assert await terminal.say("Hello") == "Paris."
        assert "the thread 'main' has no role" in " ".join((await terminal.say("/role")).split())


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
    rows = [line.split()[:2] for line in why.splitlines()[1:4]]
    assert rows == [["account", "active"], ["workspace", "active"], ["channel", "-"]]
    assert why.splitlines()[-1] == "Where active roles conflict, the later in this list wins."
    assert "polite" not in terminal.text


@pytest.mark.requirement("R14")
async def test_role_host_that_is_down_fails_turns(start: Start, stub: OpenAIStub, tmp_path: Path) -> None:
    host = HostProcess(tmp_path)
    async with start("--role-host", host.url, WORLDAGENT_ROLE_CACHE_TTL="0") as terminal:
        await terminal.shows(f"model openai/answer, profile general, roles at {host.url}")
        await terminal.shows("error: ", "remedy: ", "Messages get no answer until the role host is back.")
        assert "remedy: " in await terminal.say("Hello")
        assert stub.requests == []
        try:
            await host.start()
            async with asyncio.timeout(BOUND):
                while await terminal.say("And now?") != "Paris.":
                    pass
        finally:
            await host.kill()


# --- commands and input ---------------------------------------------------------------------------------------------


async def test_command_is_completed_and_unknown_one_gets_a_suggestion(start: Start, stub: OpenAIStub) -> None:
    async with start() as terminal:
        shown = " ".join((await terminal.say("/histroy 3")).split())
        assert shown.startswith("error: the command '/histroy' does not exist, and nothing was sent")
        assert "the nearest is /history" in shown
        assert "takes no argument" in await terminal.say("/why not")
        told = await terminal.say("/help")
        for name in (*COMMANDS, "Alt-Enter"):
            assert f"\n{name} " in f"\n{told}"
            assert told.count(f"\n{name} ") <= 1
        await terminal.prompt()
        terminal.write("/hi" + TAB)
        await terminal.shows("main> /history")
        terminal.write(CTRL_C)
        await terminal.prompt()
        terminal.write("/r" + TAB)
        await terminal.shows("/role ", "/resume ", "the stored roles of workspace")


async def test_several_lines_are_one_message(start: Start, stub: OpenAIStub) -> None:
    async with start() as terminal:
        terminal.write("one" + ALT_ENTER + "two\\" + ENTER + "three" + ENTER)
        await terminal.shows("Paris.")
        assert "one\ntwo\nthree" in stub.said()
        await terminal.prompt()
        terminal.paste("four\nfive\n\nsix")
        await terminal.shows("six")
        terminal.write(ENTER)
        await terminal.until(lambda: terminal.text.count("Paris.") == 2)
        await terminal.prompt()
        assert "four\nfive\n\nsix" in stub.said()
        assert len(stub.requests) == 2
        terminal.paste("/usr/bin/thing: an error\nand more of it")
        terminal.write(ENTER)
        await terminal.shows("the command '/usr/bin/thing:' does not exist")
        assert len(stub.requests) == 2


async def test_the_history_of_input_outlives_the_chat_and_is_for_its_owner_only(start: Start, home: Path) -> None:
    async with start() as terminal:
        await terminal.say("first")
        await terminal.say("second\\" + ENTER + "line")
        await terminal.say("/why")
        terminal.write(CTRL_D)
        await terminal.ended()
    file = home / "chat-history.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_bytes(b'{"text": "old"}\n' * ENTRIES + file.read_bytes() + b'not JSON\n"cut off')
    async with start() as terminal:
        terminal.write(UP)
        await terminal.shows("main> /why")
        terminal.write(UP)
        await terminal.shows("main> second", "      line")
    texts = [json.loads(line)["text"] for line in file.read_bytes().splitlines()]
    assert (len(texts), texts[-4:]) == (ENTRIES, ["old", "first", "second\nline", "/why"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_it_works_without_colour_and_at_a_terminal_that_can_do_nothing(start: Start, stub: OpenAIStub) -> None:
    async with start(TERM="dumb", NO_COLOR="1") as terminal:
        assert (await terminal.say("Hello")).endswith("Paris.")
        stub.answers = [("The lamp is lit, ", "and never seen.")]
        stub.arrived.clear()
        terminal.write("Tell me." + ENTER)
        await asyncio.wait_for(stub.arrived.wait(), BOUND)
        terminal.write(CTRL_C)
        await terminal.shows("cancelled")
        await terminal.prompt()
        terminal.write(CTRL_C)
        await terminal.shows("Ctrl-C again ends")
        await terminal.prompt()
        terminal.write(CTRL_C)
        assert await terminal.ended() == 130
        assert terminal.modes() == terminal.before
    assert b"\x1b" not in terminal.raw
