"""The sidecar's tools about skills: what the agent can run, and the package of one."""

from pathlib import Path

import pytest

from support.agents import answering
from support.sidecar_served import agents, caller_of, served, tokens
from support.skill_turns import TEXT, package
from worldagent.hosts.sidecar import Grant, Sidecar
from worldagent.skills import SkillCatalogue

pytestmark = pytest.mark.requirement("T6")

KNOWN = tokens(ana=Grant(("novel",), ("ana",)), operator=Grant(("novel",), ("*",), operator=True))


async def test_skills_are_listed_and_shown_with_their_text_for_operators_alone(tmp_path: Path) -> None:
    package(tmp_path, front="license: MIT\nallowed-tools: Read Bash(git log:*)\n", references__leaves_dot_md="Assam.")
    package(tmp_path, name="coffee", front="disable-model-invocation: true\nargument-hint: how many\n")
    (tmp_path / "skills" / "broken").mkdir()
    (tmp_path / "skills" / "broken" / "SKILL.md").write_text("x")
    version = SkillCatalogue.of([tmp_path / "skills"]).load("tea").version
    make = agents(tmp_path / "home", lm=answering(), skills=[tmp_path / "skills"])
    async with (
        served(Sidecar(make, tokens=KNOWN)) as url,
        caller_of(url, "auto", "ana") as ana,
        caller_of(url, "auto", "operator") as operator,
    ):
        more = {"level": "given", "argument_hint": None, "started_by": ["people", "models"]}
        tea = {"name": "tea", "description": "Makes tea.", **more}
        coffee = {"name": "coffee", "description": "Makes coffee.", **more} | {
            "argument_hint": "how many",
            "started_by": ["people"],
        }
        assert (await ana("skill_list"))["skills"] == [coffee, tea]
        shown = (await ana("skill_show", skill="tea"))["skill"]
        assert shown == {
            **tea,
            "license": "MIT",
            "compatibility": None,
            "metadata": {},
            "allowed_tools": ["Read", "Bash(git log:*)"],
            "disallowed_tools": [],
            "scripts": True,
            "files": ["references/leaves.md"],
            "version": version,
            "instructions": None,
        }
        assert (await operator("skill_show", skill="tea"))["skill"] == {**shown, "instructions": TEXT}
        for name in ("broken", "milk"):
            error = await ana.refused("skill_show", skill=name)
            assert (error["code"], error["remedy"]) == ("unknown_skill", "the skills are: coffee, tea")
        (tmp_path / "skills" / "tea" / "references" / "leaves.md").write_text("Ceylon.")
        assert (await ana("skill_show", skill="tea"))["skill"]["version"] != version


async def test_an_agent_without_skills_has_an_empty_list(tmp_path: Path) -> None:
    async with (
        served(Sidecar(agents(tmp_path, lm=answering()), tokens=KNOWN)) as url,
        caller_of(url, "auto", "ana") as ana,
    ):
        assert (await ana("skill_list"))["skills"] == []
