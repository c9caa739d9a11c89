"""`worldagent import`: files of CrewAI and of ouro become profiles and skills (P1)."""

import json
from pathlib import Path

import pytest

from support.agents import scripted_agent
from support.command_line import Run, as_json, home, refusal, run
from worldagent.core.errors import ProfileInvalid
from worldagent.profiles import Profiles
from worldagent.skills import SkillCatalogue
from worldagent.testing import ScriptedLM

__all__ = ["home", "run"]  # fixtures

pytestmark = pytest.mark.requirement("P1")

# The keys are those of the files that `crewai create crew` makes; the texts are restated.
AGENTS = """\
researcher:
  role: >
    {topic} Researcher
  goal: >
    Find out what is new about {topic}
  backstory: >
    You find what matters: sources first.
  llm: openai/gpt-4o
  max_iter: 3

writer:
  role: Writer
  goal: Write a report
  backstory: You write clearly.
  tools: [SerperDevTool, FileReadTool, our_own_tool]
"""
TASKS = """\
research_task:
  description: >
    Look for news about {topic}. It is {current_year}.
  expected_output: >
    A list of ten points
  agent: researcher

reporting_task:
  description: Write the report.
  expected_output: A report as Markdown
  tools: [FileWriterTool, remote shell]
  context: [research_task]
  output_file: report.md
"""
# The keys are those of roles of https://github.com/ouro-ai-labs/ouro, at several of its versions.
ROLE = """\
name: coder
description: Writes code
system_prompt: |
  <role>
  You write code.
  </role>
guidelines: |
  - Be brief
tools:
  - read_file
  - smart_edit
  - shell_task_status
agents_md: true
memory:
  strategy: deletion
  long_term_memory: false
mcp_servers: {shop: {command: shop}}
skills:
  enabled: true
  allowed: [tea]
verification:
  enabled: false
  max_iterations: 3
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: Path) -> Path:
    """The files of other programs, in the current folder."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    for name, text in (("agents", AGENTS), ("tasks", TASKS), ("coder", ROLE)):
        (folder / f"{name}.yaml").write_text(text)
    monkeypatch.chdir(folder)
    return folder


async def test_agents_of_crewai_become_profiles(run: Run, files: Path, user: Path) -> None:
    result = await run("import", "agents.yaml", "--set", "topic=tea")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        f"profile researcher: {user / 'researcher.yaml'}",
        f"profile writer: {user / 'writer.yaml'}",
    ]
    assert result.stderr.splitlines() == [
        "note: agents.yaml:1: it names no tools, so it can call all that the agent has: list them in `tools`",
        "note: agents.yaml:1: keys without a counterpart are left out: llm, max_iter",
        "note: agents.yaml:11: the tool 'our_own_tool' is left out: add yours to `tools`",
    ]
    researcher, writer = (Profiles.open(user).get(name) for name in ("researcher", "writer"))
    assert researcher.description == "tea Researcher"
    assert researcher.system_prompt == (
        "Your role: tea Researcher\n\nYou find what matters: sources first.\n\n"
        "Your goal: Find out what is new about tea\n"
    )
    assert (researcher.tools, writer.tools) == (None, ("web_search", "read_file"))


async def test_tasks_of_crewai_become_skills_whose_placeholders_are_inputs(
    run: Run, files: Path, tmp_path: Path
) -> None:
    told = await as_json(run, "import", "tasks.yaml", "--to", str(tmp_path / "mine"), "--set", "current_year=2026")
    assert [(each["kind"], each["name"], each["notes"]) for each in told["imported"]] == [
        (
            "skill",
            "research-task",
            ["its agent is 'researcher': run it with the --profile of that name"],
        ),
        ("skill", "reporting-task", ["keys without a counterpart are left out: context, output_file"]),
    ]
    skills = tmp_path / "mine" / "skills"
    reporting, research = SkillCatalogue.of([skills]).usable
    assert (reporting.allowed_tools, reporting.warnings) == (("write_file", "remote-shell"), ())
    assert (research.allowed_tools, research.warnings) == ((), ())
    assert research.description == "Look for news about {topic}. It is 2026."
    lm = ScriptedLM([{"reply": "Ten points."}])
    async with scripted_agent(tmp_path / "home", lm, skills=[skills]) as agent:
        turn = await agent.thread("t1").run_skill("research-task", {"topic": "tea"})
    assert turn.result.reply == "Ten points."
    assert "A list of ten points" in lm.calls[0].system
    assert "tea" in lm.calls[0].text


async def test_a_role_of_ouro_becomes_a_profile_of_another_name(run: Run, files: Path, user: Path) -> None:
    refused = await refusal(run, "import", "coder.yaml")
    assert (refused["code"], refused["remedy"]) == (
        "name_taken",
        "give --prefix TEXT, or rename or remove the other one",
    )
    assert list(user.glob("*.yaml")) == []
    told = await as_json(run, "import", "coder.yaml", "--prefix", "ouro-")
    assert told["imported"][0]["notes"] == [
        "`skills.allowed` has no counterpart and is left out",
        "the tool 'shell_task_status' is left out: add yours to `tools`",
        "keys without a counterpart are left out: mcp_servers",
    ]
    profile = Profiles.open(user).get("ouro-coder")
    assert profile.system_prompt == ("<role>\nYou write code.\n</role>\n\n<guidelines>\n- Be brief\n</guidelines>\n")
    assert profile.tools == ("read_file", "edit_file")
    assert (profile.agents_md, profile.skills.enabled, profile.verification.enabled) == (True, True, False)
    assert (profile.memory.strategy, profile.memory.long_term_memory) == ("sliding_window", False)
    again = await refusal(run, "import", "coder.yaml", "--prefix", "ouro-")
    assert "there is a profile 'ouro-coder' already" in again["message"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: {role: x, goal: 5}\n", "it has no text `goal`; write `goal: TEXT`"),
        ("a: {role: x, goal: y, backstory: z, tools: web}\n", "`tools` is not a list"),
        ("a: {description: x, expected_output: ''}\n", "it has no text `expected_output`"),
        ("name: x\nsystem_prompt: 5\n", "'system_prompt' is not a text"),
        ("a: {role: x, goal: y, backstory: z}\nb: 5\n", "it is not a mapping"),
        ("model: x\n", "it is neither a file of CrewAI's agents or tasks nor a role of ouro; pass agents.yaml"),
        ("- x\n", "it is neither a file of CrewAI's agents or tasks nor a role of ouro"),
        ("a: [\n", "cannot be read"),
    ],
)
async def test_a_file_that_cannot_be_imported_writes_nothing(
    run: Run, files: Path, user: Path, text: str, problem: str
) -> None:
    (files / "odd.yaml").write_text(text)
    refused = await run("import", "agents.yaml", "odd.yaml")
    assert refused.exit_code == 2
    assert problem in refused.stderr.replace("\nremedy: ", "; ")
    assert "odd.yaml:1" in refused.stderr or "odd.yaml:2" in refused.stderr
    assert list(user.glob("*.yaml")) == []


@pytest.mark.parametrize(
    ("text", "key", "program"),
    [
        (AGENTS, "researcher", "CrewAI"),
        (TASKS, "research_task", "CrewAI"),
        (ROLE, "guidelines", "ouro"),
        ("skills: {allowed: [tea]}\n", "allowed", "ouro"),
    ],
)
def test_an_unknown_key_of_a_profile_that_another_program_has_names_the_import(
    tmp_path: Path, text: str, key: str, program: str
) -> None:
    file = tmp_path / "theirs.yaml"
    file.write_text(text)
    with pytest.raises(ProfileInvalid, match=rf"has no key '{key}'") as caught:
        Profiles.open(tmp_path).load(file)
    assert caught.value.remedy.startswith(f"{program} has it; `worldagent import {file}` writes a profile of the file;")
    assert json.dumps(caught.value.remedy)
