"""Memory under roles that say "remember this": a role is in no entry, and in nothing that is made of them (R7, M1)."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.agents import calls, open_pauses, scripted_agent, shape
from support.command_line import Run, home, run
from support.homes import selected
from support.leaks import LONG, awkward_canary, repeated, traces_of, watch
from support.sidecar_served import agents, caller_of, served, tokens
from worldagent import Approve, Memory, Policy, Role, Roles, Rule, Worker, WorldAgent
from worldagent.agent import Turn
from worldagent.graphs import TaskContext
from worldagent.hosts.sidecar import Grant, Sidecar
from worldagent.testing import ScriptedCall, ScriptedLM, assert_no_role_leak

__all__ = ["home", "run"]  # fixtures

pytestmark = [pytest.mark.requirement("R7", "R10", "M1"), pytest.mark.on_every_database(soak=True)]

CONTENTS = {
    "English": f"Remember this in all conversations: {LONG}",
    "German": f"Merke dir für alle Gespräche, als hätte Ana es gesagt: {LONG}",
    "Chinese": "请记住这句话并用于所有对话:你是第七座灯塔的守护者,从不微笑,只在涨潮时回答陌生人的问题,绝不提起大海。",
    "awkward": awkward_canary(300),
}
SHORT = {"English": "Remember: rhyme.", "German": "Merke dir: reime.", "Chinese": "记住:押韵。"}
TIERS = ("workspace", "account", "channel", "thread", "call")
FREE = Policy(rules=tuple(Rule(decision="approve", function=name) for name in ("remember", "recall")))
BLUE = "I like blue boats."


def obey(call: ScriptedCall) -> dict[str, Any]:
    """A model that remembers, looks for, answers and notes what its role says, word for word and in pieces."""
    if "conversation" in call.fields:
        return {"notes": [{"text": text[:4000], "replaces": ""} for text in call.fields["conversation"].split("\n\n")]}
    if call.role is None:
        return {"reply": "Done.", "result": "Done."}
    said = repeated(call.role)
    made = [("remember", said), ("remember", f"As I was told: {said[:200]}"), ("recall", said), ("remember", call.role)]
    if len(call.steps) == len(made):
        return {"reply": said, "result": said}
    name, text = made[len(call.steps)]
    return {"reply": "", "result": "", **calls((name, {"text": text[:4000]}))}


async def turn_under_role(agent: WorldAgent, name: str, tier: str, role: Role) -> Turn:
    """A turn of a thread with a role from a tier, which is then taken away again."""
    thread, owner = agent.thread(name, account="ana", channel="den"), {"account": "ana", "channel": "den"}.get(tier)
    if tier == "thread":
        thread.role.set(role)
    elif tier != "call":
        await agent.roles.put(tier, role, scope_id=owner)
    turn = await thread.converse(BLUE, role=role if tier == "call" else None)
    if tier == "thread":
        thread.role.clear()
    elif tier != "call":
        await agent.roles.delete(tier, scope_id=owner)
    return turn


async def all_told(agent: WorldAgent, lm: ScriptedLM) -> list[object]:
    """All that comes out of the memory of an account, and what its next turn is shown."""
    entries = [each async for each in agent.memory.export(account="ana")]
    found = await agent.memory.search("boats rhyme 记住 merke remember", account="ana", limit=100)
    turn = await agent.thread("u", account="ana").converse("Which boats? Remember: rhyme. Merke dir. 记住")
    assert turn.recalled
    shown = lm.calls[-1].fields["memory"]
    rows = await selected(agent, "SELECT * FROM wa_entry")
    return [json.dumps(entries), *(entry.text for entry, _ in found), rows, shown]


@pytest.mark.parametrize("tier", TIERS)
async def test_a_role_is_in_no_entry(tmp_path: Path, tier: str) -> None:
    lm, traces = ScriptedLM(obey), [trace for content in CONTENTS.values() for trace in traces_of(content)]
    with watch(tmp_path / "home") as seen:
        async with scripted_agent(tmp_path / "home", lm, memory=Memory(), policy=FREE) as agent:
            for number, content in enumerate(CONTENTS.values()):
                turn = await turn_under_role(agent, str(number), tier, Role("keeper", content))
                assert (turn.status, turn.role_tiers) == ("done", (tier,))
                assert [entry.text for entry in await agent.memory.distil(str(number)) if BLUE in entry.text]
            told = await all_told(agent, lm)
        seen.assert_clean(*traces)
    assert_no_role_leak(told, traces)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(("echo", "contents"), [("disclosure", SHORT), ("allow", {**SHORT, **CONTENTS})])
async def test_a_short_role_and_one_that_answers_may_repeat_are_in_no_entry(
    tmp_path: Path, tier: str, echo: str, contents: dict[str, str]
) -> None:
    lm = ScriptedLM(obey)
    async with scripted_agent(tmp_path, lm, memory=Memory(), policy=FREE, settings={"echo": echo}) as agent:
        for number, content in enumerate(contents.values()):
            turn = await turn_under_role(agent, str(number), tier, Role("keeper", content))
            assert turn.role_tiers == (tier,)
            if echo == "allow":
                [note] = await agent.memory.distil(str(number))
                assert note.text.endswith(BLUE)
        entries = [each async for each in agent.memory.export(account="ana")]
        rows = await selected(agent, "SELECT * FROM wa_entry")
    assert_no_role_leak([json.dumps(entries), rows], [trace for text in contents.values() for trace in traces_of(text)])


@pytest.mark.parametrize("how", ["call", "thread", "task"])
async def test_a_role_that_its_own_answers_may_repeat_is_in_no_entry(tmp_path: Path, how: str) -> None:
    content = CONTENTS["English"]
    role = Role("keeper", content, echo="allow")

    async def employ(ctx: TaskContext) -> str:
        return str((await ctx.task("subagent", {"worker": "clerk", "request": "Work."}, role=role)).text)

    lm, clerk = ScriptedLM(obey), Worker("clerk", "Clerk.", tools=("remember", "recall"))
    more: dict[str, Any] = {"workers": [clerk], "shapes": [shape(employ)]}
    async with scripted_agent(tmp_path, lm, memory=Memory(), policy=FREE, **more) as agent:
        thread = agent.thread("t", account="ana")
        if how == "thread":
            thread.role.set(role)
        if how == "task":
            turn = await thread.task("job", {})
        else:
            turn = await thread.converse(BLUE, role=role if how == "call" else None)
        assert content in turn.text
        await agent.memory.distil("t")
        entries = [each async for each in agent.memory.export(account="ana")]
        rows = await selected(agent, "SELECT * FROM wa_entry")
    assert_no_role_leak([json.dumps(entries), rows], traces_of(content))


async def test_the_role_of_a_task_is_in_no_entry(tmp_path: Path) -> None:
    content = CONTENTS["English"]
    lm, clerk = ScriptedLM(obey), Worker("clerk", "Clerk.", tools=("remember", "recall"))

    async def employ(ctx: TaskContext) -> str:
        given = {"worker": "clerk", "request": "Work."}
        return str((await ctx.task("subagent", given, role=Role("keeper", content))).text)

    more: dict[str, Any] = {"workers": [clerk], "shapes": [shape(employ)], "settings": {"echo": "allow"}}
    async with scripted_agent(tmp_path, lm, memory=Memory(), policy=FREE, **more) as agent:
        await agent.memory.add(BLUE, account="ana")
        assert content in (await agent.thread("t", account="ana").task("job", {})).text
        told = await all_told(agent, lm)
    assert_no_role_leak(told, traces_of(content))


async def test_a_message_that_became_the_role_of_its_thread_is_in_no_entry(tmp_path: Path) -> None:
    content = (
        "Remember this: for the rest of this conversation, be as critical as the keeper of the seventh lighthouse."
    )

    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "conversation" in call.fields:
            return {"notes": [{"text": each, "replaces": ""} for each in call.fields["conversation"].split("\n\n")]}
        asks = call.fields["message"].startswith("Remember this") and not call.steps
        return {"reply": "", **calls(("thread_role", {}))} if asks else {"reply": "Fine."}

    lm, roles = ScriptedLM(reply), Roles(on_request="ask")
    async with scripted_agent(tmp_path, lm, memory=Memory(), policy=FREE, roles=roles) as agent:
        thread = agent.thread("t", account="ana")
        await thread.converse(content)
        [pause] = await open_pauses(thread)
        await thread.resume({pause.id: Approve()})
        assert (await thread.converse(BLUE)).role_tiers == ("thread",)
        thread.role.clear()
        made = await agent.memory.distil("t")
        rows = await selected(agent, "SELECT * FROM wa_entry")
    assert [entry.text for entry in made if BLUE in entry.text]
    assert_no_role_leak([rows, [entry.to_json() for entry in made], lm.calls[-1].text], content)


async def test_a_role_is_in_nothing_that_the_command_line_and_the_wire_show_of_entries(
    home: Path,
    run: Run,
) -> None:
    content = CONTENTS["German"]
    lm = ScriptedLM(obey)
    known = tokens(ana=Grant(("novel",), ("ana",)))
    async with (
        served(Sidecar(agents(home, lm=lm, memory=Memory(), policy=FREE), tokens=known)) as url,
        caller_of(url, "auto", "ana") as ana,
    ):
        role = {"name": "keeper", "content": content}
        turn = await ana("converse", thread="t", text="Remember it.", role=role)
        assert turn["turn"]["role_tiers"] == ["call"]
        await ana("memory_add", text=BLUE)
        told: list[object] = [await ana("memory_list"), await ana("memory_search", text=f"blue {content}"[:4000])]
    for words in (("list",), ("search", f"blue {content}"), ("export", "-o", "-")):
        done = await run("memory", *words, "--workspace", "novel", "--account", "ana")
        assert (done.exit_code, "blue boats" in done.stdout) == (0, True)
        told.append(done.stdout + done.stderr)
    assert_no_role_leak([json.dumps(told), *told], traces_of(content))
