"""A skill package runs as a task of the turn, chosen by the conversation or by the host (T6)."""

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.agents import approving, calls, paying, scripted_agent
from support.mcp_tools import stdio
from support.processes import call_of, killed, run_script, start_script
from support.skill_turns import (
    ROLE,
    TEXT,
    adding,
    asking,
    chosen,
    die,
    name_of,
    package,
    pause,
    shop,
    with_role_but_at_the_critic,
)
from worldagent import Policy
from worldagent.core.errors import GraphChanged, InvalidArgument, ParamsInvalid, UnknownSkill, WorldAgentError
from worldagent.core.pauses import Approve
from worldagent.harness import CallContext, Worker, flow, tool
from worldagent.profiles import Profile, Skills
from worldagent.skills.package import read_package
from worldagent.testing import ScriptedLM, assert_no_role_leak
from worldagent.tools import BuiltinTools

pytestmark = pytest.mark.requirement("T6")


@pytest.mark.requirement("T6", "T11")
@pytest.mark.parametrize("form", ["native", "chat"])
async def test_a_conversation_chooses_a_skill_and_its_role_attaches_there_alone(tmp_path: Path, form: str) -> None:
    package(tmp_path)
    critic = Worker("critic", "You judge what you are given.", "judges texts")
    lm, seen = chosen(
        lambda call: (
            {"reply": "Two cups."} if call.steps else {"reply": "", **calls(("critic", {"request": "Is it?"}))}
        ),
        form,
    )
    home = tmp_path / "home"
    async with scripted_agent(home, lm, skills=[tmp_path / "skills"], workers=[critic]) as agent:
        turn = await agent.thread("t1").converse("Tea for two, please.", role=ROLE)
        assert turn.text == "Served."
    names = [name_of(call) for call in seen]
    assert names == ["Converse", "RunSkill", "critic", "RunSkill", "Converse"]
    assert [ROLE.content in call.text for call in seen] == [True, True, False, True, True]
    assert [TEXT in call.text for call in seen] == [False, True, False, True, False]
    assert "- tea: Makes tea." in seen[0].text if form == "chat" else "skill" in seen[0].tools
    assert "Two cups." in str(seen[-1].steps)
    assert_no_role_leak(home, ROLE.content)
    assert_no_role_leak(home, TEXT)


async def test_a_skill_waits_for_an_approval_and_another_agent_resumes(tmp_path: Path) -> None:
    folder, done = package(tmp_path), list[str]()
    lm, seen = chosen(
        lambda call: {"reply": "Paid."} if call.steps else {"reply": "", **calls(("pay", {"what": "tea"}))}
    )
    more: dict[str, Any] = {"skills": [tmp_path / "skills"], "tools": [paying(done)]}
    async with scripted_agent(tmp_path / "home", lm, **more) as agent:
        turn = await agent.thread("t1").converse("Tea, please.", role=ROLE)
        assert turn.status == "paused"
        [pause] = turn.pauses
    (folder / "notes.md").write_text("changed")
    async with scripted_agent(tmp_path / "home", lm, **more) as agent:
        with pytest.raises(GraphChanged, match="the skill 'tea' has changed since the turn began; restore its package"):
            await agent.thread("t1").resume({pause.id: Approve()}, role=ROLE)
    (folder / "notes.md").unlink()
    async with scripted_agent(tmp_path / "home", lm, **more) as agent:
        thread = agent.thread("t1")
        answered = {each.id: Approve() for each in await thread.pauses() if not each.answered}
        turn = await thread.resume(answered, role=ROLE)
        assert (turn.text, done) == ("Served.", ["tea"])
    assert [name_of(call) for call in seen] == ["Converse", "RunSkill", "RunSkill", "Converse"]
    assert all(ROLE.content in call.text for call in seen)
    assert_no_role_leak(tmp_path / "home", ROLE.content)


async def test_a_skill_that_waits_for_an_approval_resumes_in_another_process(tmp_path: Path) -> None:
    package(tmp_path)
    home, skills = tmp_path / "home", tmp_path / "skills"
    await run_script(call_of(pause, home, skills))
    (lm, seen), done = chosen(asking), list[str]()
    async with shop(home, skills, lm, done) as agent:
        thread = agent.thread("t1")
        turn = await thread.resume({each.id: Approve() for each in await thread.pauses()}, role=ROLE)
    assert (turn.text, done) == ("Served.", ["tea"])
    assert with_role_but_at_the_critic(seen) == ["RunSkill", "critic", "RunSkill", "Converse"]
    assert_no_role_leak(home, ROLE.content)
    assert_no_role_leak(home, TEXT)


async def test_the_journal_has_a_keyed_digest_of_a_skills_text(tmp_path: Path) -> None:
    folder, done = package(tmp_path), list[str]()
    lm, _ = chosen(asking)
    async with shop(tmp_path / "home", tmp_path / "skills", lm, done) as agent:
        [pause] = (await agent.thread("t1").converse("Tea, please.", role=ROLE)).pauses
    before = read_package(folder).version
    (folder / "SKILL.md").write_text((folder / "SKILL.md").read_text().replace("copper", "iron"))
    with closing(sqlite3.connect(tmp_path / "home" / "agent.db")) as database, database:
        [(version,)] = database.execute("SELECT version FROM wa_call WHERE name='skill'").fetchall()
        assert version.split(" ")[1:3] == ["tea", before]
        assert hashlib.sha256(TEXT.encode()).hexdigest() not in version
        forged = version.replace(before, read_package(folder).version)
        database.execute("UPDATE wa_call SET version=? WHERE name='skill'", (forged,))
    async with shop(tmp_path / "home", tmp_path / "skills", lm, done) as agent:
        with pytest.raises(GraphChanged, match="the skill 'tea' has changed since the turn began"):
            await agent.thread("t1").resume({pause.id: Approve()}, role=ROLE)
    assert done == []


async def test_a_killed_skill_resumes_in_another_process(tmp_path: Path) -> None:
    package(tmp_path)
    home = tmp_path / "home"
    await killed(await start_script(call_of(die, home, tmp_path / "skills")))
    lm, seen = chosen(lambda call: {"reply": "Done."} if call.steps else {"reply": "Again from the beginning."})
    given: Any = {"tools": [adding(tmp_path)], "policy": Policy(rules=(approving("add"),))}
    async with scripted_agent(home, lm, skills=[tmp_path / "skills"], **given) as agent:
        turn = await agent.thread("t1").resume(role=ROLE)
    assert turn.text == "Served."
    assert [name_of(call) for call in seen] == ["RunSkill", "Converse"]
    assert (tmp_path / "lines.txt").read_text() == "tea\n"
    assert ROLE.content in seen[0].text
    assert_no_role_leak(home, ROLE.content)


async def test_the_host_runs_a_skill_by_name(tmp_path: Path) -> None:
    package(tmp_path)
    lm = ScriptedLM(lambda call: {"reply": f"{'With' if ROLE.content in call.text else 'Without'} a role."})
    async with scripted_agent(tmp_path / "home", lm, skills=[tmp_path / "skills"]) as agent:
        thread = agent.thread("t1")
        turn = await thread.run_skill("tea", {"request": "Two cups."}, role=ROLE)
        assert (turn.result.skill, turn.result.reply) == ("tea", "With a role.")
        turn = await thread.run_skill("tea", {"request": "Two cups."})
        assert turn.result.reply == "Without a role."
        assert (await thread.replay(role=ROLE)).result.reply == "With a role."
        async with thread.stream_skill("tea", {"request": "Two cups."}) as stream:
            kinds = [event.type async for event in stream]
        assert kinds.count("task_started") == 1


async def test_a_skill_says_who_can_start_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    package(tmp_path, front="disable-model-invocation: true\neffort: low\n")
    package(tmp_path, name="milk", front="user-invocable: false\n")
    lm, seen = chosen(lambda _: {"reply": "Done."})
    async with scripted_agent(tmp_path / "home", lm, skills=[tmp_path / "skills"]) as agent:
        thread = agent.thread("t1")
        assert (await thread.converse("Tea, please.")).text == "Served."
        assert [name_of(call) for call in seen] == ["Converse", "Converse"]
        assert "- milk: Makes milk." in seen[0].text
        assert "Makes tea." not in seen[0].text
        assert "the skill 'tea' is started by people only" in seen[1].steps[0]
        assert (await thread.run_skill("tea", {"request": "Two."})).result.reply == "Done."
        for refused in (
            thread.run_skill("milk", {"request": "x"}),
            thread.task("skill", {"name": "milk", "request": "x"}),
        ):
            with pytest.raises(ParamsInvalid, match="'milk' is not for people to start"):
                await refused
    assert [each.getMessage() for each in caplog.records if each.name == "worldagent.skills"] == [
        "not all that the SKILL.md of these skills says is used: 'tea'; `worldagent skills check FOLDER` has the lines"
    ]


async def test_an_agent_whose_skills_are_for_people_offers_none(tmp_path: Path) -> None:
    package(tmp_path, front="disable-model-invocation: true\n")
    lm = ScriptedLM([{"reply": "Hello."}, {"reply": "Tea."}], form="native")
    async with scripted_agent(tmp_path / "home", lm, skills=[tmp_path / "skills"]) as agent:
        await agent.thread("t1").converse("Hello.")
        assert "skill" not in lm.calls[0].tools
        assert (await agent.thread("t1").run_skill("tea", {"request": "Two."})).result.reply == "Tea."


async def test_a_function_that_a_model_calls_does_not_start_a_skill_for_people(tmp_path: Path) -> None:
    package(tmp_path, front="disable-model-invocation: true\n")

    @flow
    async def brew(ctx: CallContext) -> str:
        """Make tea."""
        return str(await ctx.call("skill", {"name": "tea", "request": "Two."}))

    lm = ScriptedLM(lambda call: {"reply": "Done."} if call.steps else {"reply": "", **calls(("brew", {}))})
    async with scripted_agent(tmp_path / "home", lm, skills=[tmp_path / "skills"], tools=[brew]) as agent:
        await agent.thread("t1").converse("Tea, please.")
    assert "the skill 'tea' is started by people only" in lm.calls[-1].steps[0]


async def test_a_skill_that_declares_schemas_is_typed(tmp_path: Path) -> None:
    given = {"type": "object", "properties": {"cups": {"type": "integer"}}, "required": ["cups"]}
    gives = {"type": "object", "properties": {"minutes": {"type": "number"}}, "required": ["minutes"]}
    front = "metadata:\n  worldagent-input: in.json\n  worldagent-output: out.json\n"
    package(tmp_path, front=front, in_dot_json=json.dumps(given), out_dot_json=json.dumps(gives))
    replies = iter([{"reply": {"minutes": "many"}}, {"reply": {"minutes": 3}}])
    lm = ScriptedLM(lambda _: next(replies))
    async with scripted_agent(tmp_path / "home", lm, skills=[tmp_path / "skills"]) as agent:
        turn = await agent.thread("t1").run_skill("tea", {"cups": 2}, role=ROLE)
        assert turn.result.reply == {"minutes": 3}
        with pytest.raises(ParamsInvalid, match="params of worker 'RunSkill'"):
            await agent.thread("t1").run_skill("tea", {"cups": "two"})
        with pytest.raises(ParamsInvalid, match="takes `input`"):
            await agent.thread("t1").run_skill("tea", {"request": "Two."})


async def test_allowed_tools_narrow_what_a_skill_can_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    package(
        tmp_path,
        front="allowed-tools: Bash(echo:*) find Task\n",
        references__leaves_dot_md="green leaves",
        scripts__brew_dot_py="import sys; print('brewed', *sys.argv[1:])",
    )

    @tool(risk="read_only")
    def find(what: str) -> str:
        """Find something."""
        return f"found {what}"

    asked: list[tuple[str, dict[str, Any]]] = [
        ("find", {"what": "kettle"}),
        ("read_skill_file", {"path": "references/leaves.md"}),
        ("read_skill_file", {"path": "../tea/SKILL.md"}),
        ("shell", {"command": "rm -rf ."}),
        ("run_skill_script", {"script": "scripts/brew.py", "arguments": []}),
    ]
    lm, seen = chosen(lambda call: {"reply": "Done."} if call.steps else {"reply": "", **calls(*asked)})
    tools = BuiltinTools(roots=(tmp_path,), shell=True)
    more: dict[str, Any] = {"skills": [tmp_path / "skills"], "tools": [find], "builtin_tools": tools}
    async with scripted_agent(tmp_path / "home", lm, **more) as agent:
        assert (await agent.thread("t1").converse("Tea.")).text == "Served."
    results = str(next(call.steps for call in seen if name_of(call) == "RunSkill" and call.steps))
    assert "found kettle" in results
    assert "green leaves" in results
    assert "has no file" in results
    assert results.count("allows only these commands: echo *") == 2
    assert {each.getMessage() for each in caplog.records if each.name == "worldagent.skills"} == {
        "the skill 'tea' names tools that the agent does not have: Task"
    }


async def test_a_script_runs_in_a_copy_of_its_folder_after_an_approval(tmp_path: Path) -> None:
    script = "import pathlib, sys; pathlib.Path('made.txt').write_text('x'); print('brewed', *sys.argv[1:])"
    folder = package(tmp_path, scripts__brew_dot_py=script)
    asked = ("run_skill_script", {"script": "scripts/brew.py", "arguments": ["two cups", "$HOME"]})
    lm, seen = chosen(lambda call: {"reply": "Done."} if call.steps else {"reply": "", **calls(asked)})
    tools = BuiltinTools(roots=(tmp_path,), shell=True)
    async with scripted_agent(tmp_path / "home", lm, skills=[tmp_path / "skills"], builtin_tools=tools) as agent:
        thread = agent.thread("t1")
        turn = await thread.converse("Tea.")
        assert turn.status == "paused"
        turn = await thread.resume({pause.id: Approve() for pause in turn.pauses})
        assert turn.text == "Served."
    assert "brewed two cups $HOME" in str(seen[-2].steps)
    assert sorted(path.name for path in folder.iterdir()) == ["SKILL.md", "scripts"]


@pytest.mark.parametrize(
    ("call", "error", "problem"),
    [
        (("coffee", {"request": "x"}), UnknownSkill, "there is no skill 'coffee'; the skills are: tea"),
        (("te", {"request": "x"}), UnknownSkill, "did you mean 'tea'"),
        (("tea", {}), ParamsInvalid, "takes `request`"),
        (("tea", {"cups": 2}), ParamsInvalid, "takes `request`"),
        ((7, {}), InvalidArgument, "must be a name or a Composed"),
        (("tea", "Two."), InvalidArgument, "`params` must be a mapping, got a str; pass {"),
    ],
)
async def test_bad_input(tmp_path: Path, call: Any, error: type[WorldAgentError], problem: str) -> None:
    package(tmp_path)
    async with scripted_agent(tmp_path / "home", ScriptedLM([]), skills=[tmp_path / "skills"]) as agent:
        with pytest.raises(error) as caught:
            await agent.thread("t1").run_skill(*call)
        assert problem in str(caught.value)


async def test_an_agent_without_skills(tmp_path: Path) -> None:
    package(tmp_path)
    lm = ScriptedLM([{"reply": "Hello."}, {"reply": "Hello."}])
    async with scripted_agent(tmp_path / "home", lm) as agent:
        with pytest.raises(UnknownSkill, match="the agent has none; pass"):
            await agent.thread("t1").run_skill("tea", {"request": "x"})
    profile = Profile(name="plain", skills=Skills(enabled=False))
    async with scripted_agent(tmp_path / "home", lm, skills=[tmp_path / "skills"], profile=profile) as agent:
        with pytest.raises(InvalidArgument, match="switches skills off"):
            await agent.thread("t1").run_skill("tea", {"request": "x"})
        await agent.thread("t1").converse("Hello.")
        assert "Makes tea." not in lm.calls[-1].text
    with pytest.raises(InvalidArgument, match="is not a folder of skills"):
        scripted_agent(tmp_path / "home", lm, skills=[tmp_path / "none"])
    with pytest.raises(InvalidArgument, match="must be a list of folders"):
        scripted_agent(tmp_path / "home", lm, skills="skills")


async def test_a_server_offers_skills_whose_scripts_never_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked = calls(("read_skill_file", {"path": "references/leaves.md"}))
    lm, seen = chosen(lambda call: {"reply": "Done."} if call.steps else {"reply": "", **asked})
    home, roots = tmp_path / "home", tmp_path / "roots"
    roots.mkdir()
    more: dict[str, Any] = {"builtin_tools": BuiltinTools(roots=(roots,), shell=True)}
    async with scripted_agent(home, lm, mcp={"t": stdio(tmp_path, broken="skills")}, **more) as agent:
        with pytest.raises(UnknownSkill, match="the agent has none"):
            await agent.thread("t1").run_skill("tea", {"request": "x"})
    async with scripted_agent(home, lm, mcp={"t": stdio(tmp_path, broken="skills", skills=True)}, **more) as agent:
        assert (await agent.thread("t2").converse("Tea.")).text == "Served."
    first = next(call for call in seen if name_of(call) == "RunSkill")
    assert "Boil the water of the server." in first.system
    assert "run_skill_script" not in first.text
    assert "green leaves" in str(seen[-2].steps)
    assert "the resource 'skill://tea/../../escape.md' is left out" in caplog.text
