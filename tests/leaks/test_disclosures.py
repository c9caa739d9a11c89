"""What an answer discloses of a role is nowhere afterwards: on no disk and no wire, in no log, in no reader's text."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.acp_clients import editor
from support.agents import open_pauses, scripted_agent, standing, streamed
from support.leak_disclosures import (
    BEFORE,
    CUTS,
    EXPECTED,
    MARK,
    Disclosed,
    Disclosing,
    Killed,
    assert_nowhere,
    case_of,
    disclosing,
    disclosures,
)
from support.leaks import TracePlaces, Watch, kill_child, watch
from support.services import FORMATS, Service, service
from support.sidecar_app import SERVICE, WORKSPACE, look
from support.sidecar_calls import MODERN, Refused
from support.sidecar_clients import BOUND, HttpClient, StdioClient
from support.sidecars import TOKEN, over_http
from support.sidecars import over_stdio as stdio_sidecar
from support.web import STREAM, events_in
from worldagent import Role, Settings, Storage, Tier, WorldAgent
from worldagent.agent import Thread, Turn
from worldagent.core.errors import RoleEchoed
from worldagent.core.events import TextDelta, TurnEvent
from worldagent.core.pauses import RunAgain
from worldagent.harness import Worker
from worldagent.hosts.serving import PATH
from worldagent.role_resolution import Echo
from worldagent.testing import ScriptedLM

JSON = {"Accept": "application/json"}

pytestmark = [pytest.mark.requirement("R7", "R16"), pytest.mark.on_every_database(soak=True)]


# --- Python -----------------------------------------------------------------------------------------------------------


async def _converse(thread: Thread, case: Disclosed) -> Any:
    return await thread.converse(case.message, role=case.of_call())


async def _converse_with_key(thread: Thread, case: Disclosed) -> Any:
    return [await thread.converse(case.message, role=case.of_call(), key="k") for _ in range(2)]


async def _task(thread: Thread, case: Disclosed) -> Any:
    return await thread.task("subagent", {"worker": "clerk", "request": case.message}, role=case.of_call())


async def _stream(thread: Thread, case: Disclosed, **more: Any) -> Any:
    async with thread.stream(case.message, role=case.of_call(), subagents=True, **more) as stream:
        return [[event async for event in stream], stream.turn]


async def _stream_with_key(thread: Thread, case: Disclosed) -> Any:
    return [await _stream(thread, case, key="k") for _ in range(2)]


async def _stream_task(thread: Thread, case: Disclosed) -> Any:
    params = {"worker": "clerk", "request": case.message}
    async with thread.stream_task("subagent", params, role=case.of_call(), subagents=True) as stream:
        return [[event async for event in stream], stream.turn]


CALLS: Sequence[Callable[[Thread, Disclosed], Awaitable[Any]]] = (
    _converse,
    _converse_with_key,
    _task,
    _stream,
    _stream_with_key,
    _stream_task,
)


async def in_python(folder: Path, stub: Service, cases: Sequence[Disclosed]) -> None:
    """Each way of the public API, then what reads turns later, and what copies them."""
    home = folder / "home"
    with watch(home) as seen:
        asyncio.get_running_loop().set_debug(False)  # it takes most of the time, and the other cases have it
        places = TracePlaces(home)
        settings = Settings(api_base=stub.url("chat"), model_attempts=1, examples="all")
        async with WorldAgent(
            "w",
            lm=FORMATS["chat"],
            storage=Storage(home=home),
            settings=settings,
            tools=[look],
            workers=[Worker("clerk", "You keep notes.", "keeps notes", tools=("look",))],
            trace=places.trace(),
        ) as agent:
            for case in cases:
                await _asked(agent, seen, case)
            replayed = await _read_again(agent, folder, seen)
            assert replayed, "no turn is recorded, so this shows little"
            _look(folder, cases, seen, places, replayed)
    assert_nowhere(cases, folder)


async def _asked(agent: WorldAgent, seen: Watch, case: Disclosed) -> None:
    thread, ask = agent.thread(case.thread, account="ana"), CALLS[case.number % len(CALLS)]
    given = await seen.outcome(seen.inside_a_chain(lambda: ask(thread, case)))
    expected = EXPECTED[case.echo]
    assert isinstance(given, expected) if expected else MARK in str(_turns(given)[0].text), (case, given)


async def _read_again(agent: WorldAgent, folder: Path, seen: Watch) -> list[TurnEvent]:
    """Export, copy and read all that is kept; gives the events of the turns that are recorded."""
    seen.kept.append(await agent.examples())
    await agent.upkeep.back_up(folder / "copy", home_only=agent.storage.url is not None)
    replayed: list[TurnEvent] = []
    for state in await agent.threads():
        seen.kept.append(await agent.thread(state.thread, account="ana").history())
        await agent.upkeep.export(state.thread, folder / f"{state.thread}.jsonl")
        if state.recorded:
            replayed += [event async for event in agent.events(state.turn_id)]
    return replayed


def _turns(given: Any) -> list[Turn]:
    if isinstance(given, Turn):
        return [given]
    return [turn for each in given for turn in _turns(each)] if isinstance(given, list) else []


def _look(
    folder: Path, cases: Sequence[Disclosed], seen: Watch, places: TracePlaces, replayed: Sequence[TurnEvent]
) -> None:
    events = [event.model_dump(mode="json") for event in (*seen.events, *replayed)]
    kept = [*seen.objects().values(), *places.in_memory()]
    assert_nowhere(cases, folder, *kept, told=events)


# --- servers ----------------------------------------------------------------------------------------------------------


@dataclass
class Heard:
    """All that clients got.

    Attributes:
        texts: Bodies.
        messages: Messages of streams and of protocols.
    """

    texts: list[str] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)

    def take(self, response: httpx2.Response) -> str:
        """Keep a response, and give its text."""
        text = response.text
        self.texts.append(f"{response.headers} {text}")
        streamed = "event-stream" in response.headers["content-type"]
        # The end of an OpenAI stream is not JSON.
        self.messages += events_in(text.replace("data: [DONE]", "")) if streamed else [response.json()]
        return text


Way = Callable[[Any, HttpClient | StdioClient, Heard, Disclosed], Awaitable[str]]


def _role(case: Disclosed) -> dict[str, Any]:
    return {"role": {"content": case.content, "echo": case.echo}}


def _ids(case: Disclosed) -> dict[str, str]:
    return {"workspace": WORKSPACE, "account": "ana"}


def _web(headers: dict[str, str], path: str, **more: Any) -> Way:
    """Over HTTP, and then what is read of the turn again."""

    async def ask(web: httpx2.AsyncClient, _: Any, heard: Heard, case: Disclosed) -> str:
        params = {"worker": "critic", "request": case.message}
        given = {"text": case.message} if path == "messages" else {"shape": "subagent", "params": params}
        body = {**_ids(case), **given, **_role(case), "subagents": True, **more}
        said = heard.take(await web.post(f"threads/{case.thread}/{path}", json=body, headers=headers))
        for again in (f"threads/{case.thread}/messages", "threads"):
            heard.take(await web.get(again, params=_ids(case)))
        found = re.search(r"turn_[0-9a-f]{32}", said)
        assert found is not None
        for again, accept in (("events", {}), ("events", STREAM), ("trace", {})):
            heard.take(await web.get(f"turns/{found[0]}/{again}", params=_ids(case), headers=accept))
        return said

    return ask


async def _ag_ui(web: httpx2.AsyncClient, _: Any, heard: Heard, case: Disclosed) -> str:
    said = [{"id": "m", "role": "user", "content": case.message}]
    run = {"threadId": case.thread, "runId": "r", "tools": [], "context": [], "state": {}, "messages": said}
    return heard.take(await web.post("ag-ui", json={**run, "forwardedProps": {**_ids(case), **_role(case)}}))


def _openai(*, stream: bool, key: bool) -> Way:
    async def ask(web: httpx2.AsyncClient, _: Any, heard: Heard, case: Disclosed) -> str:
        messages = [{"role": "system", "content": case.content}, {"role": "user", "content": case.message}]
        headers = {
            "X-Worldagent-Account": "ana",
            "X-Worldagent-Thread": case.thread,
            **({"Idempotency-Key": "k"} if key else {}),
        }
        model = WORKSPACE if case.echo == "disclosure" else case.echo
        body = {"model": model, "messages": messages, "stream": stream}
        return [heard.take(await web.post("v1/chat/completions", json=body, headers=headers)) for _ in range(1 + key)][
            -1
        ]

    return ask


def _tool(name: str, **more: Any) -> Way:
    """Through a tool of the sidecar, and then what is read of the turn again."""

    async def ask(_: Any, client: HttpClient | StdioClient, heard: Heard, case: Disclosed) -> str:
        params = {"worker": "critic", "request": case.message}
        given = {"text": case.message} if name == "converse" else {"shape": "subagent", "params": params}
        body = {**_ids(case), "thread": case.thread, **given, **_role(case), "subagents": True, **more}
        async with client.call(name, body, progress=True) as call:
            try:
                said = await call.answer()
            except Refused as refused:
                said = refused.told
        heard.messages += [*call.events, said]
        turn = call.events[0]["turn_id"]
        for tool_name, asked in (("events", {"turn_id": turn}), ("history", {"thread": case.thread})):
            heard.messages.append(await client.ask(tool_name, **_ids(case), **asked))
        return json.dumps(said)

    return ask


def _environment(stub: Service) -> dict[str, Any]:
    return {SERVICE: stub.url("chat"), "WORLDAGENT_TESTS_LOGS": "1", "OPENAI_API_KEY": "key"}


WAYS: Sequence[Way] = (
    _web(JSON, "messages", key="k"),
    _web(STREAM, "messages"),
    _web(STREAM, "tasks", key="k"),
    _ag_ui,
    _openai(stream=False, key=False),
    _openai(stream=False, key=True),
    _openai(stream=True, key=False),
    _openai(stream=True, key=True),
    _tool("converse", key="k"),
    _tool("task"),
)


async def over_the_web(folder: Path, stub: Service, cases: Sequence[Disclosed]) -> None:
    """The web app with all its protocols, and the sidecar over HTTP."""
    heard, workspaces = Heard(), (WORKSPACE, "strict", "fail")
    options = ("--web", "--log-level", "debug")
    async with over_http(folder / "home", *options, workspaces=workspaces, **_environment(stub)) as server:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        base = server.url.removesuffix(PATH) + "/"
        async with httpx2.AsyncClient(base_url=base, timeout=BOUND, headers=headers) as web, server.client() as client:
            for case in cases:
                said = await WAYS[case.number % len(WAYS)](web, client, heard, case)
                assert ("role_echoed" if case.echo == "fail" else MARK) in said, (case, said)
            assert_nowhere(cases, folder, client.heard, heard.texts, told=heard.messages)
    kinds = {message.get("type") for message in heard.messages}
    assert kinds >= {"text_delta", "reasoning_delta", "task_text_delta", "task_arguments_delta", "TEXT_MESSAGE_CONTENT"}


async def over_stdio(folder: Path, stub: Service, cases: Sequence[Disclosed]) -> None:
    """The sidecar as a child."""
    heard = Heard()
    async with stdio_sidecar(folder / "home", MODERN, "--log-level", "debug", **_environment(stub)) as (_, client):
        for case in cases:
            said = await _tool(("converse", "task")[case.number % 2])(None, client, heard, case)
            assert ("role_echoed" if case.echo == "fail" else MARK) in said, (case, said)
        assert_nowhere(cases, folder, told=[*heard.messages, *client.heard])


async def over_acp(folder: Path, stub: Service, cases: Sequence[Disclosed]) -> None:
    """An editor, whose modes are the roles."""
    modes = folder / "modes"
    modes.mkdir()
    options = []
    for case in cases:
        file = modes / f"{case.thread}.md"
        file.write_text(case.content, encoding="utf-8", newline="")
        options += ["--mode", f"{case.thread}=@{file}"]
    async with editor(folder / "home", *options, "--log-level", "debug", **_environment(stub)) as found:
        session = await found.new()
        for case in cases:
            await found.connection.set_session_mode(session_id=session, mode_id=case.thread)
            assert await found.prompt(session, case.message) == "end_turn"
        assert found.text.count(MARK) >= len(cases)
        assert_nowhere(cases, folder / "home", found.errors, told=found.heard)


NUMBERS: dict[Any, Sequence[Disclosed]] = {
    in_python: disclosures(12),
    over_the_web: disclosures(15),
    over_stdio: disclosures(4),
    over_acp: disclosures(3, "disclosure"),
}
"""How each surface is asked, and what it is asked for."""


@pytest.mark.parametrize("surface", NUMBERS, ids=lambda surface: surface.__name__)
async def test_what_is_withheld_is_nowhere(tmp_path: Path, surface: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    with service() as stub:
        stub.reply = disclosing(NUMBERS[surface])
        await surface(tmp_path, stub, NUMBERS[surface])


# --- processes that are killed ----------------------------------------------------------------------------------------

MODES: Sequence[Echo] = ("fail", "strict", "disclosure")  # an answer that fails makes no call
KILLED = [
    Killed(number, "tutor-en-06-a", dress, echo, cut)
    for number, (cut, dress, echo) in enumerate(zip(CUTS, ("bullets", "plain", "table"), MODES, strict=True))
]


@pytest.mark.parametrize("case", KILLED, ids=lambda case: case.cut)
async def test_what_a_killed_process_had_from_its_model_is_nowhere(tmp_path: Path, case: Killed) -> None:
    home = tmp_path / "home"
    left = await kill_child("disclosing", case, home)
    assert_nowhere([case], home, *left)
    with watch(home) as seen:
        asyncio.get_running_loop().set_debug(False)
        resumed = Disclosing(case, home)
        async with resumed.on_thread() as thread:
            state = await thread.state()
            assert state is not None
            again = {pause.id: RunAgain() for pause in await open_pauses(thread)}
            turn = await seen.outcome(thread.resume(again, role=case.of_call()))
            replayed = [event async for event in resumed.agent.events(state.turn_id)]
            kept = list(seen.objects().values())
            assert_nowhere([case], home, *kept, told=[event.model_dump(mode="json") for event in replayed])
    shown = "".join(event.text for event in replayed if isinstance(event, TextDelta))
    assert BEFORE.split(",")[0] in shown, "nothing was shown before the kill, so this shows little"
    assert isinstance(turn, RoleEchoed) if case.echo == "fail" else MARK in turn.text


# --- stacks -----------------------------------------------------------------------------------------------------------

STACK = [
    Disclosed(0, "report-de-03-b", "numbers", "disclosure"),
    Disclosed(1, "legal-de-02-b", "numbers", "disclosure"),
    Disclosed(2, "code-en-02-a", "numbers", "disclosure"),
]
"""The roles of a workspace, an account and a call, each as a list."""


async def test_no_tier_of_a_stack_is_given_back_whole(tmp_path: Path) -> None:
    home = tmp_path / "home"
    lm = ScriptedLM(lambda call: {"reply": STACK[case_of(call.user)].answer}, chunk=7)
    async with scripted_agent(home, lm) as agent:
        await agent.roles.put(Tier.WORKSPACE, Role("w", STACK[0].content))
        await agent.roles.put(Tier.ACCOUNT, Role("a", STACK[1].content), scope_id="ana")
        given: list[Any] = []
        for case in STACK:
            role, thread = Role("c", STACK[2].content), agent.thread(case.thread, account="ana")
            turn, events = await streamed(thread.stream(case.message, role=role, key="k"))
            assert all(each.content in lm.calls[-1].text for each in STACK)
            assert turn.role_tiers == (Tier.ACCOUNT, Tier.WORKSPACE, Tier.CALL)
            assert turn.text == standing(events) == case.shown
            assert turn.withheld.fields == ("reply",)
            replayed = [event async for event in agent.events(turn.id)]
            given += [event.model_dump(mode="json") for event in (*events, *replayed)]
            given += [turn.to_json(), [message.body for message in await thread.history()]]
        assert_nowhere(STACK, home, told=given)
    assert_nowhere(STACK, home)
