"""The sidecar's tools over real HTTP: what a client in any language sees of the surfaces."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.agents import paying, to
from support.role_hosts import BOUND, Mode
from support.services import FORMATS, Said, service
from support.sidecar_served import MODES, Held, agents, as_json, caller_of, served
from support.skill_turns import TEXT, asking, chosen, name_of, package
from worldagent import Settings
from worldagent.core.events import ReasoningDelta, TaskTextDelta, TurnEnded
from worldagent.harness import Worker
from worldagent.hosts.sidecar import Sidecar
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T4")

revisions = pytest.mark.parametrize("mode", MODES)  # what comes while a call runs differs in them

ROLE = "You are a lighthouse keeper of few words, who speaks of nothing but the tide."


def sidecar_at(home: Path, lm: ScriptedLM) -> Sidecar:
    return Sidecar(agents(home, lm=lm, workers=[Worker("critic", "You judge.")]))


async def test_converse_gives_json_that_fits_a_schema(tmp_path: Path) -> None:
    lm = ScriptedLM([{"reply": {"text": "hat"}}])
    async with served(sidecar_at(tmp_path, lm)) as url, caller_of(url) as ask:
        output = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        answer = await ask("converse", workspace="novel", thread="t", text="hm", output=output)
    assert answer["turn"]["result"] == {"text": "hat"}


@revisions
async def test_a_conversation_streams_its_events_as_progress(tmp_path: Path, mode: Mode) -> None:
    sidecar = sidecar_at(tmp_path, ScriptedLM([{"reply": "The tide is out."}]))
    async with served(sidecar) as url, caller_of(url, mode) as ask:
        answer = await ask("converse", workspace="novel", thread="t1", text="Well?")
    turn = answer["turn"]
    assert list(answer) == ["contract", "turn", "seq", "next"]
    assert list(turn)[:4] == ["id", "thread", "status", "text"]
    assert (turn["status"], turn["text"], turn["thread"], answer["next"]) == ("done", "The tide is out.", "t1", [])
    assert ask.text == "The tide is out."
    assert [event.seq for event in ask.events] == list(range(1, answer["seq"] + 1)) == ask.progress
    assert {event.turn_id for event in ask.events} == {turn["id"]}
    assert isinstance(ask.events[-1], TurnEnded)
    assert turn["usage"]["calls"] == 1


async def test_task_skill_and_schedule_give_what_they_give(tmp_path: Path) -> None:
    told: list[str] = []

    def reply(call: ScriptedCall) -> dict[str, Any]:
        told.append(call.text)
        return {"reply": "fine", "answer": "fine", "result": "fine"}

    sidecar = sidecar_at(tmp_path, ScriptedLM(reply))
    params = {"worker": "critic", "request": "Judge the tide."}
    place: dict[str, Any] = {"workspace": "novel"}
    async with served(sidecar) as url, caller_of(url) as ask:
        task = await ask("task", **place, thread="t1", shape="subagent", params=params)
        skill = await ask("run_skill", **place, thread="t2", skill={"prompt": "Judge in verse."}, params=params)
        fired = await ask("run_scheduled", **place, thread="t3", schedule="nightly", fired_at="2030-01-01T10:00:00Z")
    assert task["turn"]["status"] == skill["turn"]["status"] == fired["turn"]["status"] == "done"
    assert task["turn"]["result"] is not None
    assert task["turn"]["result"] == skill["turn"]["result"]
    assert fired["turn"]["text"] == "fine"
    assert fired["turn"]["result"] is None
    assert "Judge in verse." not in told[0]
    assert "Judge in verse." in told[1]


@pytest.mark.requirement("T6")
async def test_a_skill_is_run_by_its_name(tmp_path: Path) -> None:
    package(tmp_path)
    (lm, seen), done = chosen(asking), list[str]()
    more: dict[str, Any] = {
        "skills": [tmp_path / "skills"],
        "tools": [paying(done)],
        "workers": [Worker("critic", "You judge.", "judges")],
    }
    place: dict[str, Any] = {"workspace": "novel", "thread": "t", "role": {"content": ROLE}}
    async with served(Sidecar(agents(tmp_path / "home", lm=lm, **more))) as url, caller_of(url) as ask:
        waits = await ask("run_skill", **place, skill="tea", params={"request": "Two cups."})
    [step] = waits["next"]
    assert step["needs"] == ["answers", "role"]  # and not the skill, which is found by its name
    async with served(Sidecar(agents(tmp_path / "home", lm=lm, **more))) as url, caller_of(url) as ask:
        [pause] = waits["turn"]["pauses"]
        answer = await ask("resume", **place, answers={pause["id"]: {"approve": {}}})
    assert (answer["turn"]["result"], done) == ({"skill": "tea", "reply": "Paid."}, ["tea"])
    assert [(name_of(call), TEXT in call.system, ROLE in call.text) for call in seen] == [
        ("RunSkill", True, True),
        ("RunSkill", True, True),
        ("critic", False, False),
        ("RunSkill", True, True),
    ]


@pytest.mark.requirement("R8")
async def test_a_role_in_a_call_reaches_the_model_of_that_turn_alone(tmp_path: Path) -> None:
    lm = ScriptedLM([{"reply": "Tide."}, {"reply": "Yes."}])
    async with served(sidecar_at(tmp_path, lm)) as url, caller_of(url) as ask:
        first = await ask("converse", workspace="novel", thread="t1", text="Well?", role={"content": ROLE})
        await ask("converse", workspace="novel", thread="t1", text="And?")
        history = await ask("history", workspace="novel", thread="t1")
    assert first["turn"]["role_tiers"] == ["call"]
    assert ROLE in lm.calls[0].text
    assert ROLE not in lm.calls[1].text
    assert ROLE not in str(first)
    assert ROLE not in str(history)
    assert ROLE not in str(ask.events)


@revisions
async def test_cancel_ends_a_turn_that_another_client_follows(tmp_path: Path, mode: Mode) -> None:
    held = Held()
    sidecar = sidecar_at(tmp_path, ScriptedLM(held))
    async with served(sidecar) as url, caller_of(url, mode) as ask, caller_of(url, mode) as other:
        asking = asyncio.create_task(ask("converse", workspace="novel", thread="t1", text="Well?"))
        await asyncio.wait_for(held.begun.acquire(), BOUND)
        assert await other("cancel", workspace="novel", thread="t1") == {"contract": 1, "cancelled": True}
        assert (await asking)["turn"]["status"] == "cancelled"
        assert await other("cancel", workspace="novel", thread="t1") == {"contract": 1, "cancelled": False}


@pytest.mark.requirement("T10")
async def test_events_without_progress_are_pages(tmp_path: Path) -> None:
    sidecar = sidecar_at(tmp_path, ScriptedLM([{"reply": "one two three four five"}]))
    async with served(sidecar) as url, caller_of(url) as ask:
        done = await ask("converse", workspace="novel", thread="t1", text="Well?", detach=True)
        told: dict[str, Any] = {"workspace": "novel", "turn_id": done["turn"]["id"], "follow": False}
        page = await ask("events", **told, limit=3)
        assert [event["seq"] for event in page["events"]] == [1, 2, 3]
        assert page["seq"] == 3
        [step] = page["next"]
        assert (step["tool"], step["arguments"]["after"]) == ("events", 3)
        assert step["why"] == "there are more of its events"  # it runs no longer
        rest = await ask("events", **step["arguments"], follow=False)
        empty = await ask("events", **told, after=done["seq"], wait=0)
    assert page["events"] + rest["events"] == [as_json(event) for event in ask.events]
    assert rest["next"] == []
    assert rest["turn"]["text"] == "one two three four five"
    assert empty["events"] == []
    assert empty["seq"] == done["seq"]
    assert empty["turn"]["status"] == "done"


async def test_history_fork_threads_and_explain_role(tmp_path: Path) -> None:
    sidecar = sidecar_at(tmp_path, ScriptedLM([{"reply": "Yes."}]))
    async with served(sidecar) as url, caller_of(url) as ask:
        where: dict[str, Any] = {"workspace": "novel", "thread": "t1", "account": "ana"}
        await ask("converse", **where, text="Well?")
        history = await ask("history", **where)
        assert [(message["kind"], message["body"]["text"]) for message in history["messages"]] == [
            ("message", "Well?"),
            ("answer", "Yes."),
        ]
        assert all(message["at"].endswith("Z") for message in history["messages"])
        assert await ask("fork", **where, to="t2") == {"contract": 1, "thread": "t2"}
        told = await ask("threads", workspace="novel")
        assert {(one["thread"], one["status"], one["account"], one["turn_id"]) for one in told["threads"]} == {
            ("t1", "done", "ana", history["messages"][0]["turn_id"]),
            ("t2", "forked", None, None),
        }
        assert all(one["since"].endswith("Z") for one in told["threads"])
        fresh = await ask("pauses", workspace="novel", thread="t2")
        assert (fresh["status"], fresh["turn_id"], fresh["next"]) == ("forked", None, [])
        explained = await ask("explain_role", **where, role={"content": ROLE, "name": "keeper"})
        [call] = [tier for tier in explained["tiers"] if tier["tier"] == "call"]
        assert (call["name"], call["length"]) == ("keeper", len(ROLE))
        assert ROLE not in str(explained)


@pytest.mark.requirement("R10")
async def test_a_thread_role_is_set_and_cleared(tmp_path: Path) -> None:
    lm = ScriptedLM([{"reply": "Tide."}, {"reply": "Yes."}])
    async with served(sidecar_at(tmp_path, lm)) as url, caller_of(url) as ask:
        where: dict[str, Any] = {"workspace": "novel", "thread": "t1"}
        assert await ask("thread_role_set", **where, role={"content": ROLE}) == {"contract": 1, "set": True}
        first = await ask("converse", **where, text="Well?")
        assert await ask("thread_role_clear", **where) == {"contract": 1, "cleared": True}
        assert await ask("thread_role_clear", **where) == {"contract": 1, "cleared": False}
        await ask("converse", **where, text="And?")
    assert first["turn"]["role_tiers"] == ["thread"]
    assert ROLE in lm.calls[0].text
    assert ROLE not in lm.calls[1].text


@revisions
async def test_thoughts_are_unnumbered_progress(tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    thought = "The tide table has to be read first. " * 20
    with service(Said("The tide is out.", (), thought)) as stub:
        shown = {"reasoning_summary": "auto"}
        settings = Settings(api_base=stub.url("anthropic"), model_attempts=1, model_options=shown)
        sidecar = Sidecar(agents(tmp_path, lm=FORMATS["anthropic"], settings=settings))
        async with served(sidecar) as url, caller_of(url, mode) as ask:
            answer = await ask("converse", workspace="novel", thread="t1", text="Well?")
            turn = answer["turn"]["id"]
            again = await ask("events", follow=False, workspace="novel", turn_id=turn)
    thoughts = [event for event in ask.events if isinstance(event, ReasoningDelta)]
    assert "".join(event.text for event in thoughts).strip() == thought.strip()
    assert len(thoughts) > 10
    others = [event.seq for event in ask.events if not isinstance(event, ReasoningDelta)]
    assert others == list(range(1, answer["seq"] + 1))
    assert ask.progress == sorted(set(ask.progress))
    assert all(event.seq in (0, *others) for event in thoughts)
    assert "reasoning_delta" not in {event["type"] for event in again["events"]}


@pytest.mark.requirement("T18")
@revisions
async def test_what_workers_say_is_unnumbered_progress_of_a_call_that_asks_for_it(tmp_path: Path, mode: Mode) -> None:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "You judge" in call.system:
            return {"result": "Dull, and far too long."}
        return {"reply": "It is dull."} if call.steps else to("critic")

    async with (
        served(sidecar_at(tmp_path, ScriptedLM(reply))) as url,
        caller_of(url, mode) as ask,
    ):
        answer = await ask("converse", workspace="novel", thread="t1", text="Well?", subagents=True)
        said = [event for event in ask.events if isinstance(event, TaskTextDelta)]
        others = [event.seq for event in ask.events if not isinstance(event, TaskTextDelta)]
        assert ask.progress == sorted(set(ask.progress))
        ask.events.clear()
        await ask("converse", workspace="novel", thread="t2", text="Well?")
    assert answer["turn"]["text"] == "It is dull."
    assert "".join(event.text for event in said) == "Dull, and far too long."
    assert others == list(range(1, answer["seq"] + 1))
    assert not [event for event in ask.events if isinstance(event, TaskTextDelta)]
