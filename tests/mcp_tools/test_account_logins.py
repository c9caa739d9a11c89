"""MCP servers to which each account logs in for itself: whose token is sent, which tools are offered, the pauses."""

import asyncio
import gc
import weakref
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support.agents import calls, failure
from support.authorization import Authorization, authorization, kept_in, logged_in
from support.mcp_tools import agent_over, until
from worldagent.core.errors import (
    CallRefused,
    InvalidArgument,
    McpLoginRequired,
    McpServerUnavailable,
)
from worldagent.core.pauses import Answer
from worldagent.mcp_client import HttpHost
from worldagent.mcp_client.tools import Login, Mcp, McpServer, sources
from worldagent.mcp_client.tools.rounds import DECLINE, GO_ON
from worldagent.testing import ScriptedLM

pytestmark = pytest.mark.requirement("H2")
BY_ACCOUNT = Login(by="account")
ACCOUNTS = ("ana", "ben")


def server_of(host: HttpHost, **more: Any) -> McpServer:
    return McpServer(host, login=BY_ACCOUNT, risk={"*": "read_only"}, **more)


def echo(text: str) -> dict[str, Any]:
    return {"function": "t_echo", "arguments": {"text": text}}


def sent_by(state: Authorization, accounts: Sequence[str] = ACCOUNTS) -> Counter[tuple[str, str]]:
    """How often a text `of ACCOUNT` was sent, with whose token."""
    found = ((user, name) for user, body in state.bodies for name in accounts if f"of {name}".encode() in body)
    return Counter(found)


@pytest.mark.requirement("T9")
async def test_two_accounts_each_use_their_own_login_at_once_after_renewals_and_in_another_process(
    tmp_path: Path,
) -> None:
    with authorization() as (state, host):
        for name in ACCOUNTS:
            await logged_in(tmp_path, state, host, account=name, user=name)
        for round in range(2):  # the second agent is another process
            async with agent_over(tmp_path, server_of(host)) as agent:
                for _ in range(2):
                    threads = [agent.thread(f"{round} {name}", account=name) for name in ACCOUNTS]
                    turns = (each.task("use", echo(f"of {each.scope.account}")) for each in threads)
                    assert [turn.result.value for turn in await asyncio.gather(*turns)] == ["of ana", "of ben"]
                    assert await agent.call("t_echo", {"text": "of ana"}, account="ana") == "of ana"
                    state.revoke()  # both renew their own
                links = {id(agent.get(Mcp)["t"].of(name)._connection.link) for name in ACCOUNTS}
                assert len(links) == 2
                error = await failure(agent.call("t_echo", {"text": "of nobody"}))
                assert type(error) is McpLoginRequired
                assert "account" in error.remedy
                assert isinstance(await failure(agent.get(Mcp)["t"].connect()), McpLoginRequired)
    assert sent_by(state) == {("ana", "ana"): 8, ("ben", "ben"): 4}
    assert Counter(state.grants)["authorization_code"] == 2


async def test_the_login_of_one_account_is_none_of_another_and_of_no_workspace(tmp_path: Path) -> None:
    with authorization() as (state, host):
        await logged_in(tmp_path, state, host, account="ana")
        async with agent_over(tmp_path, {"t": server_of(host), "u": McpServer(host)}) as agent:
            assert await agent.call("t_echo", {"text": "x"}, account="ana") == "x"
            for call in (agent.call("t_echo", {"text": "x"}, account="ben"), agent.get(Mcp)["u"].connect()):
                error = await failure(call)
                assert type(error) is McpLoginRequired
            assert error.remedy == "run `worldagent mcp login u --workspace novel`, or pass a token that it accepts"
            error = await failure(agent.call("t_echo", {"text": "x"}, account="ben"))
            assert error.remedy == "run `worldagent mcp login t --workspace novel --account ben`"
            # A function that a call of another account got hold of refuses it.
            stolen = agent.get(Mcp)["t"].of("ana").functions["echo"]
            assert agent._spec.registry.of("ben").offered.keys() & {"t_echo", "t_log_in"} == {"t_log_in"}
            agent._spec.registry.of("ben").replace_source("x", [stolen])
            assert isinstance(await failure(agent.call("t_echo", {"text": "x"}, account="ben")), McpLoginRequired)
    assert set(state.users) == {"ana"}
    with pytest.raises(InvalidArgument, match="`skills`"):
        server_of(host, skills=True)


async def test_a_login_of_another_person_or_its_end_counts_from_the_next_call_in_every_process(tmp_path: Path) -> None:
    with authorization() as (state, host):
        await logged_in(tmp_path, state, host, account="ana")
        async with agent_over(tmp_path, server_of(host)) as agent:
            for user in ("ana", "ben"):  # as somebody else, under the same account
                if user == "ben":
                    await logged_in(tmp_path, state, host, account="ana", user="ben")
                state.users.clear()
                assert await agent.call("t_echo", {"text": "x"}, account="ana") == "x"
                assert set(state.users) == {user}
            await kept_in(tmp_path, host, "ana").remove()
            state.users.clear()
            assert isinstance(await failure(agent.call("t_echo", {"text": "x"}, account="ana")), McpLoginRequired)
    assert not state.users


@pytest.mark.requirement("T4", "T5")
@pytest.mark.parametrize("restart", [False, True], ids=["same process", "restart"])
async def test_a_conversation_logs_in_and_is_offered_the_tools_in_the_same_turn(tmp_path: Path, restart: bool) -> None:
    offered = []

    def reply(call: Any) -> dict[str, Any]:
        offered.append({name for name in ("t_log_in", "t_echo") if name in call.text})
        return [calls(("t_log_in", {})), calls(("t_echo", {"text": "of ben"})), {"reply": "Done."}][len(offered) - 1]

    with authorization() as (state, host):
        await logged_in(tmp_path, state, host, account="ana")

        def opened() -> Any:
            return agent_over(tmp_path, server_of(host), ScriptedLM(reply))

        agent = await opened().start()
        try:
            assert await agent.call("t_echo", {"text": "of ana"}, account="ana") == "of ana"
            turn = await agent.thread("a", account="ben").converse("Echo it.")
            [pause] = turn.pauses
            assert (pause.kind, pause.login, pause.options) == ("question", "t", (GO_ON, DECLINE))
            assert "mcp login t --workspace novel --account ben" in (pause.question or "")
            # Nobody has logged in yet, so it asks again.
            turn = await agent.thread("a", account="ben").resume({pause.id: Answer(GO_ON)})
            [pause] = turn.pauses
            await logged_in(tmp_path, state, host, account="ben", user="ben")
            if restart:
                await agent.aclose()
                agent = await opened().start()
            turn = await agent.thread("a", account="ben").resume({pause.id: Answer(GO_ON)})
            assert (turn.status, turn.text) == ("done", "Done.")
        finally:
            await agent.aclose()
    assert offered == [{"t_log_in"}, {"t_log_in", "t_echo"}, {"t_log_in", "t_echo"}]  # later ones have the history
    assert sent_by(state) == {("ana", "ana"): 1, ("ben", "ben"): 1}


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("elicitation", [False, True])
@pytest.mark.parametrize("restart", [False, True], ids=["same process", "restart"])
async def test_a_call_whose_login_is_over_pauses_and_is_made_once(
    tmp_path: Path, restart: bool, elicitation: bool
) -> None:
    with authorization() as (state, host):
        for name in ACCOUNTS:
            await logged_in(tmp_path, state, host, account=name, user=name)
        risky = McpServer(host, login=BY_ACCOUNT, risk={"*": "write"}, elicitation=elicitation)
        agent = await agent_over(tmp_path, risky).start()
        try:
            assert await agent.call("t_echo", {"text": "of ana"}, account="ana") == "of ana"
            state.revoke(refresh=True, user="ana")
            thread = agent.thread("a", account="ana")
            turn = await thread.task("use", echo("of ana"))
            [pause] = turn.pauses
            assert pause.login == "t"
            assert await agent.call("t_echo", {"text": "of ben"}, account="ben") == "of ben"
            await logged_in(tmp_path, state, host, account="ana")
            if restart:
                await agent.aclose()
                agent = await agent_over(tmp_path, risky).start()
            turn = await agent.thread("a", account="ana").resume({pause.id: Answer(GO_ON)})
            assert (turn.status, turn.result.value) == ("done", "of ana")
            state.revoke(refresh=True, user="ana")
            turn = await agent.thread("a", account="ana").task("use", echo("of ana"))
            error = await failure(agent.thread("a", account="ana").resume({turn.pauses[0].id: Answer(DECLINE)}))
            assert isinstance(error, CallRefused)
        finally:
            await agent.aclose()
    assert sent_by(state) == {("ana", "ana"): 2, ("ben", "ben"): 1}


@pytest.mark.requirement("T4")
async def test_changes_of_the_list_and_questions_of_the_server_stay_with_their_account(tmp_path: Path) -> None:
    with authorization() as (state, host):
        for name in ACCOUNTS:
            await logged_in(tmp_path, state, host, account=name, user=name)
        legacy = HttpHost(host.url, mode="legacy")  # a session for each connection, with streams of its own
        async with agent_over(tmp_path, server_of(legacy, elicitation=True)) as agent:
            turns = {}
            for name in ACCOUNTS:
                thread = agent.thread(name, account=name)
                turns[name] = await thread.task("use", {"function": "t_ask", "arguments": {}})
            for name, colour in (("ben", "blue"), ("ana", "red")):
                [pause] = turns[name].pauses
                answered = await agent.thread(name, account=name).resume({pause.id: Answer({"colour": colour})})
                assert answered.result.value == colour
            assert await agent.call("t_change", {}, account="ana") == "changed"
            await until(lambda: "added" in agent.get(Mcp)["t"].of("ana").functions)
            assert "added" not in agent.get(Mcp)["t"].of("ben").functions
            assert "t_added" not in agent._spec.registry.of("ben").names
    assert Counter(user for user, body in state.bodies if b'"colour"' in body) == {"ana": 1, "ben": 1}


@pytest.mark.requirement("T13")
async def test_an_unattended_turn_refuses_the_login_or_pauses(tmp_path: Path) -> None:
    with authorization() as (_, host):
        async with agent_over(tmp_path, server_of(host)) as agent:
            call = {"function": "t_log_in"}
            error = await failure(agent.thread("a", account="ana").task("use", call, unattended="refuse"))
            assert isinstance(error, CallRefused)
            assert "unattended" in error.problem
            turn = await agent.thread("b", account="ana").task("use", call, unattended="pause")
            assert [pause.login for pause in turn.pauses] == ["t"]


async def test_connections_are_bounded_and_those_of_idle_accounts_are_closed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MAX_ACCOUNTS", 2)
    names = ("ana", "ben", "cem")
    with authorization() as (state, host):
        for name in names:
            await logged_in(tmp_path, state, host, account=name, user=name)
        async with agent_over(tmp_path, server_of(host)) as agent:
            server = agent.get(Mcp)["t"]
            await agent.thread("a", account="ana").converse("Hello.")
            gone = weakref.ref(agent._spec.registry.of("ana"))
            for name in (*names, *names):
                assert await agent.call("t_echo", {"text": f"of {name}"}, account=name) == f"of {name}"
            assert agent._spec.registry._accounts.keys() == {"ben", "cem"}
            gc.collect()
            assert gone() is None
            for name in names:  # at once: what they close has not ended when they come back
                server.of(name)
            assert await agent.call("t_echo", {"text": "x"}, account="ben") == "x"
            assert "t_echo" in agent._spec.registry.of("ben").names
            assert "t_log_in" in agent._spec.registry.of("cem").names
            assert isinstance(server, sources.McpAccounts)
            with server.in_use("ben"), server.in_use("cem"):
                error = await failure(agent.call("t_echo", {"text": "of ana"}, account="ana"))
                assert isinstance(error, McpServerUnavailable), error
                assert "2 accounts" in error.problem
            assert await agent.call("t_echo", {"text": "of ana"}, account="ana") == "of ana"
    assert sent_by(state, names) == {(name, name): 3 if name == "ana" else 2 for name in names}
