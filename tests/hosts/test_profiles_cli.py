"""`worldagent profiles` and `worldagent trust`: which profiles there are, and which of a project can be used."""

import json
from pathlib import Path

import pytest

from support.command_line import Run, as_json, home, refusal, run
from worldagent.profiles.loading import profile_schema

__all__ = ["home", "run"]  # fixtures

MINE = """\
description: reviews
  what others wrote
extends: searcher
system_prompt: Review it.
tool_settings: {web_fetch: {timeout: 5}}
mcp_servers:
  shop: {command: shop-server, args: [--key, key-of-the-shop], env: {TOKEN: token-of-the-shop}}
  far: {url: "https://far.example/mcp?key=key-of-the-shop", token: token-of-the-shop}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: Path) -> Path:
    """A project with one profile; commands run in a folder of it."""
    folder = tmp_path / "project"
    (folder / ".worldagent" / "profiles").mkdir(parents=True)
    (folder / ".worldagent" / "profiles" / "mine.yaml").write_text(MINE)
    (folder / "src").mkdir()
    monkeypatch.chdir(folder / "src")
    return folder.resolve()


@pytest.mark.requirement("P6")
async def test_list_shows_profiles_levels_and_problems(run: Run, home: Path, user: Path, project: Path) -> None:
    (user / "searcher.yaml").write_text("extends: searcher\ndescription: my own\n")
    (user / "bad.yaml").write_text("description: x\ntool: []\n")
    (user / "quiet.yaml").write_text("{}\n")
    result = await run("profiles", "list")
    assert result.exit_code == 0
    rows = [line.split(maxsplit=2) for line in result.stdout.splitlines()]
    assert [row[:2] for row in rows] == [
        ["bad", "user"],
        ["coder", "built-in"],
        ["debugger", "built-in"],
        ["general", "built-in"],
        ["mine", "project"],
        ["quiet", "user"],
        ["searcher", "built-in"],
        ["searcher", "user"],
    ]
    assert rows[0][2] == f"[cannot be used] {user / 'bad.yaml'}:2: a profile has no key 'tool'"
    assert rows[4][2] == "[not trusted] reviews what others wrote"
    assert rows[6][2] == "[overridden] Web search and research specialist"
    told = await as_json(run, "profiles", "list")
    bad, mine = told["profiles"][0], told["profiles"][4]
    assert (bad["file"], bad["used"], bad["trusted"], bad["description"]) == (str(user / "bad.yaml"), True, True, "")
    assert bad["problems"][0]["code"] == "profile_invalid"
    assert bad["problems"][0]["remedy"].startswith("did you mean 'tools'?")
    assert (mine["level"], mine["trusted"], mine["problems"]) == ("project", False, [])
    assert told["problems"] == []


@pytest.mark.requirement("P6")
async def test_show_prints_every_setting_and_its_source(run: Run, home: Path, project: Path) -> None:
    refused = await run("profiles", "show", "mine")
    assert refused.exit_code == 2
    assert f"worldagent trust add {project}" in refused.stderr
    assert (await run("trust", "add", "--yes")).exit_code == 0
    shown = (await as_json(run, "profiles", "show", "mine"))["profile"]
    file = str(project / ".worldagent" / "profiles" / "mine.yaml")
    assert (shown["name"], shown["level"], shown["file"]) == ("mine", "project", file)
    settings = shown["settings"]
    assert settings["tool_settings.web_fetch.timeout"] == {"value": 5, "from": f"{file}:5"}
    assert settings["memory.short_term_size"]["from"].endswith("searcher.yaml:23")
    assert settings["verification.max_iterations"] == {"value": 3, "from": "default"}
    assert settings["mcp_servers.far"] == {"value": "https://far.example/mcp", "from": f"{file}:8"}
    text = (await run("profiles", "show", "mine")).stdout
    assert text.splitlines()[0] == f"# mine, project: {file}"
    assert "verification.max_iterations: 3  # default" in text.splitlines()
    for key in settings:
        assert f"\n{key}: " in text
    assert "of-the-shop" not in text + json.dumps(shown)


@pytest.mark.requirement("P1")
async def test_check_reports_all_problems_of_all_files(run: Run, home: Path, user: Path, project: Path) -> None:
    (user / "bad.yaml").write_text("tool: []\nskills: 5\n")
    (user / "fine.yml").write_text("tools: [read_file, subagent]\n")
    worse = project / ".worldagent" / "profiles" / "worse.yaml"
    worse.write_text("mcp_servers: {shop: {command: x}}\ntools:\n- shop_buy\n- grep_contnt\n- 'any*'\n- nothing\n")
    result = await run("profiles", "check")
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert lines[0::2] == [
        f"error: {user / 'bad.yaml'}:1: a profile has no key 'tool'",
        f"error: {user / 'bad.yaml'}:2: 'skills' is not a mapping of keys and values",
        f"error: {worse}:4: there is no tool 'grep_contnt'",
        f"error: {worse}:6: there is no tool 'nothing'",
    ]
    assert "--app" in lines[7]
    assert f"{user / 'fine.yml'}: fine" in result.stdout.splitlines()
    assert len((await as_json(run, "profiles", "check", code=2))["problems"]) == 4


@pytest.mark.requirement("P1")
async def test_schema_prints_the_schema(run: Run, home: Path) -> None:
    result = await run("profiles", "schema")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == profile_schema()


# --- trust -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("P6")
async def test_trust_shows_what_it_trusts_and_ends_at_a_change(run: Run, home: Path, project: Path) -> None:
    unasked = await run("trust", "add")
    assert unasked.exit_code == 2
    assert "remedy: give --yes" in unasked.stderr
    done = await run("trust", "add", "--yes")
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        f"the profiles and skills of the project {str(project)!r}:",
        f"  mine: {project / '.worldagent' / 'profiles' / 'mine.yaml'}",
        "    for: reviews what others wrote",
        "    tools: web_search, web_fetch, read_file, glob_files, grep_content",
        "    MCP server shop: starts shop-server --key key-of-the-shop",
        "      with variables: TOKEN",
        "    MCP server far: connects to https://far.example/mcp",
        "    a prompt of 10 characters",
        "trusted as they are now: mine",
    ]
    assert (await run("profiles", "show", "mine")).exit_code == 0
    with (project / ".worldagent" / "profiles" / "mine.yaml").open("a") as file:
        file.write("# more\n")
    assert "have changed since they were trusted" in (await run("profiles", "show", "mine")).stderr
    assert "which have changed since they were trusted" in (await run("trust", "add", "--yes")).stderr
    told = (await as_json(run, "trust", "add"))["trusted"]  # it is trusted already
    assert (told["project"], told["profiles"], len(told["digest"])) == (str(project), ["mine"], 64)


async def test_trust_is_taken_back(run: Run, home: Path, project: Path) -> None:
    assert (await run("trust", "remove")).exit_code == 1
    assert (await run("trust", "add", "--yes", str(project / "src"))).exit_code == 0
    assert (await as_json(run, "trust", "remove"))["removed"] == {"project": str(project)}
    assert (await run("profiles", "show", "mine")).exit_code == 2
    assert (await refusal(run, "trust", "remove", code=1))["code"] == "not_found"


async def test_trust_shows_what_a_server_can_do_and_no_name_forges_a_line(run: Run, home: Path, project: Path) -> None:
    (project / ".worldagent" / "profiles" / "mine.yaml").write_text("""\
tools: ["read_file\\n    tools: none"]
mcp_servers:
  "a\\n  b":
    command: "true"
    cwd: evil
    env: {LD_PRELOAD: value-of-it, KEY: "${SHOP_KEY:-none}"}
    risk: {"*": read_only}
    trust_annotations: true
    elicitation: true
""")
    told = (await run("trust", "add", "--yes")).stderr
    assert told.splitlines()[2:] == [
        r"    tools: 'read_file\n    tools: none'",
        r"    MCP server 'a\n  b': starts true",
        "      in the folder: evil",
        "      with variables: LD_PRELOAD, KEY",
        "      gets these values of the setting mcp_variables: SHOP_KEY",
        "      says that the risk of * is: read_only",
        "      its tools' own statements of their risk are trusted (trust_annotations)",
        "      it can ask you questions (elicitation)",
        "trusted as they are now: mine",
    ]


@pytest.mark.requirement("T6", "P6")
async def test_trust_covers_skills_and_is_listed(run: Run, home: Path, project: Path) -> None:
    folder = project / ".worldagent" / "skills" / "tea"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: tea\ndescription: Makes tea.\nallowed-tools: Read\n---\nBoil water.\n")
    assert (await run("trust", "list")).stdout == "no project is trusted\n"
    shown = await run("trust", "add", "--yes")
    assert shown.stderr.splitlines()[-4:] == [
        f"  tea: {folder}",
        "    for: Makes tea.",
        "    tools: Read",
        "trusted as they are now: mine, tea",
    ]
    assert (await as_json(run, "trust", "add"))["trusted"]["skills"] == ["tea"]
    (folder / "run.sh").write_text("echo tea")
    assert (await as_json(run, "trust", "list"))["projects"] == [{"project": str(project), "standing": "changed"}]
    assert "have changed since they were trusted" in (await run("profiles", "show", "mine")).stderr
    (project / ".worldagent").rename(project / "gone")
    assert (await run("trust", "remove", str(project))).exit_code == 0
    assert (await as_json(run, "trust", "list"))["projects"] == []
