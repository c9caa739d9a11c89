"""A turn begins or continues with one request, and each shorthand of a thread takes the fields of its request."""

import dataclasses
import inspect
import json
import pickle
from pathlib import Path
from typing import Any, assert_type

import pytest
from pydantic_core import to_json

from support.agents import CRITIC, answering, scripted_agent
from support.leaks import canary
from worldagent import Role
from worldagent.agent import (
    Composed,
    Edit,
    Replay,
    Resume,
    Say,
    Scheduled,
    Skill,
    Task,
    Thread,
    Trigger,
    Turn,
    TurnStream,
)
from worldagent.agent.requests import Request
from worldagent.core.clock import SystemClock
from worldagent.core.errors import InvalidArgument, NothingToResume, WorldAgentError

JUDGE = {"worker": "critic", "request": "Judge."}
TRIGGER = Trigger(schedule="daily", fired_at=SystemClock().now())
SHORTHANDS: list[tuple[Request, str, str]] = [
    (Say("Hello."), "converse", "stream"),
    (Task("subagent", JUDGE), "task", "stream_task"),
    (Skill(Composed("Be quick.", params=JUDGE)), "run_skill", "stream_skill"),
    (Scheduled(TRIGGER), "run_scheduled", "stream_scheduled"),
    (Edit("Hi."), "edit", "stream_edit"),
    (Replay(), "replay", "stream_replay"),
    (Resume(), "resume", "stream_resume"),
]


async def outcome(turn: Any) -> tuple[str, Any]:
    try:
        if isinstance(turn, TurnStream):
            async with turn as stream:
                done = await stream.wait()
        else:
            done = await turn
    except WorldAgentError as error:
        return error.code, str(error)
    return done.status, done.text


@pytest.mark.requirement("T1", "T4")
@pytest.mark.parametrize(("request_", "awaited", "streamed"), SHORTHANDS, ids=lambda each: str(type(each).__name__))
async def test_a_request_and_its_shorthands_run_the_same_turn(
    tmp_path: Path, request_: Request, awaited: str, streamed: str
) -> None:
    fields = {each.name: getattr(request_, each.name) for each in dataclasses.fields(request_)}
    found = []
    async with scripted_agent(tmp_path, answering(), workers=[CRITIC]) as agent:
        for number, way in enumerate(("run", "stream", awaited, streamed)):
            thread = agent.thread(f"t{number}")
            await thread.converse("One.")
            how: tuple[Any, ...] = (request_,) if way in ("run", "stream") else ()
            stream = way in ("stream", streamed)
            if way == "stream" and streamed == "stream":
                how = ("Hello.",)  # the text alone
            turn = getattr(thread, way)(*how, **({} if how else fields))
            assert isinstance(turn, TurnStream) is stream
            code, text = await outcome(turn)
            found.append((code, text.replace(f"'t{number}'", "").replace(f"/t{number}'", "'")[:40]))
        assert found[0][0] == ("nothing_to_resume" if isinstance(request_, Resume) else "done")
        assert len({code for code, _ in found}) == 1, found


@pytest.mark.requirement("T4")
async def test_a_detached_request_outlives_its_caller(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        thread = agent.thread("t")
        turn = await thread.run(Say("Hello.", detach=True))
        assert [event.type async for event in agent.events(turn.id)][-1] == "turn_ended"
        with pytest.raises(InvalidArgument, match=r"`request` must be a request, got a str; pass Say\(text\)"):
            await thread.run("Hello.")  # type: ignore[arg-type]  # what a caller without types passes
        with pytest.raises(NothingToResume):
            await thread.resume()


@pytest.mark.requirement("R7")
@pytest.mark.parametrize("kind", [Say, Task, Skill, Scheduled, Edit, Replay, Resume])
def test_a_request_shows_neither_role_nor_prompt_and_cannot_be_stored(kind: Any) -> None:
    text, prompt = canary(20), canary(20, seed="prompt")
    needed: dict[str, Any] = {"text": "Hi.", "shape": "subagent", "params": {}, "trigger": TRIGGER}
    names = inspect.signature(kind).parameters
    given = {name: value for name, value in needed.items() if name in names}
    if "skill" in names:
        given["skill"] = Composed(prompt)
    request = kind(**given, role=Role("brief", text))
    for shown in (repr(request), str(request), f"{request}", repr([request])):
        assert text not in shown
        assert prompt not in shown
        assert "brief" not in shown
    for store in (pickle.dumps, json.dumps, to_json):
        with pytest.raises((TypeError, ValueError)) as caught:
            store(request)
        assert text not in str(caught.value)


@pytest.mark.requirement("T4")
def test_the_shorthands_have_the_fields_of_their_requests() -> None:
    for request, *names in SHORTHANDS:
        for name in names:
            method = getattr(Thread, name)
            _, *shown = inspect.signature(method).parameters.values()
            assert shown == [*inspect.signature(type(request)).parameters.values()], name
            assert (method.__name__, method.__qualname__) == (name, f"Thread.{name}")
            assert method.__doc__


async def shorthands_are_typed(thread: Thread) -> None:
    """Checked by type checkers, and never run."""
    assert_type(await thread.converse("Hello.", role=None, key="k"), Turn)
    assert_type(await thread.task("subagent", {}), Turn)
    assert_type(thread.stream("Hello.", detach=True), TurnStream)
    assert_type(thread.stream(Say("Hello.")), TurnStream)
    thread.stream_resume(rol=None)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # shows that names are checked
