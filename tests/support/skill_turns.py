"""Turns that run a skill package: its folder, the scripted model, and a child process that is killed in one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.agents import approving, calls, paying, scripted_agent
from support.processes import wait_for_kill
from worldagent import Policy, Role, Worker, WorldAgent
from worldagent.harness import Function, tool
from worldagent.testing import ScriptedCall, ScriptedLM

ROLE = Role("pirate", "Answer as the pirate Long Jane Silverhook would, and mention the ninth wave.")
TEXT = "Boil the water in the copper kettle, then count to seventeen."


def package(parent: Path, *, front: str = "", text: str = TEXT, name: str = "tea", **files: str) -> Path:
    folder = parent / "skills" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Makes {name}.\n{front}---\n{text}\n")
    for path, content in files.items():
        target = folder / path.replace("__", "/").replace("_dot_", ".")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    return folder


def name_of(call: ScriptedCall) -> str:
    """The Signature that a call is of."""
    if '<skill name="tea">' in call.system:
        return "RunSkill"
    return "critic" if "You judge" in call.system else "Converse"


def chosen(answer: Callable[[ScriptedCall], Any], form: Any = "chat") -> tuple[ScriptedLM, list[ScriptedCall]]:
    """A model that runs the skill `tea` for each message, and gives `answer` inside the skill."""
    seen: list[ScriptedCall] = []

    def reply(call: ScriptedCall) -> Any:
        seen.append(call)
        if name_of(call) == "RunSkill":
            return answer(call)
        if name_of(call) == "Converse":
            asked = calls(("skill", {"name": "tea", "request": "Two."}))
            return {"reply": "Served."} if call.steps else {"reply": "", **asked}
        return {"result": "Judged."}

    return ScriptedLM(reply, form=form), seen


async def die(home: Path, skills: Path) -> None:
    """Run a skill in this process up to its second step, which never ends."""

    async def second(call: ScriptedCall) -> Any:
        if call.steps:
            await wait_for_kill()
        return {"reply": "", **calls(("add", {"line": "tea"}))}

    lm, _ = chosen(second)
    async with scripted_agent(
        home, lm, skills=[skills], tools=[adding(home.parent)], policy=Policy(rules=(approving("add"),))
    ) as agent:
        await agent.thread("t1").converse("Tea.", role=ROLE)


def asking(call: ScriptedCall) -> Any:
    """Inside the skill: pay, which needs an approval, then ask a critic, then reply."""
    if len(call.steps) == 2:
        return {"reply": "Paid."}
    return {"reply": "", **calls(("critic", {"request": "Is it?"}) if call.steps else ("pay", {"what": "tea"}))}


def with_role_but_at_the_critic(seen: list[ScriptedCall]) -> list[str]:
    """The Signatures of calls, after a look that the role is in all of them but in the critic's."""
    names = [name_of(call) for call in seen]
    assert [ROLE.content in call.text for call in seen] == [name != "critic" for name in names]
    return names


def shop(home: Path, skills: Path, lm: ScriptedLM, done: list[str]) -> WorldAgent:
    critic = Worker("critic", "You judge what you are given.", "judges texts")
    return scripted_agent(home, lm, skills=[skills], tools=[paying(done)], workers=[critic])


async def pause(home: Path, skills: Path) -> None:
    """Run a skill in this process until its step waits for an approval."""
    lm, seen = chosen(asking)
    async with shop(home, skills, lm, []) as agent:
        turn = await agent.thread("t1").converse("Tea.", role=ROLE)
    assert turn.status == "paused"
    assert with_role_but_at_the_critic(seen) == ["Converse", "RunSkill"]


def adding(folder: Path) -> Function:
    @tool(risk="write")
    def add(line: str) -> str:
        """Add a line."""
        with (folder / "lines.txt").open("a") as file:
            file.write(f"{line}\n")
        return "added"

    return add
