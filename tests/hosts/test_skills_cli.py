"""`worldagent skills list`, `show`, `check` and `run`."""

from pathlib import Path

import pytest

from support.command_line import Run, as_json, home, refusal, run

__all__ = ["home", "run"]  # fixtures

pytestmark = pytest.mark.requirement("T6")


@pytest.fixture
def skills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> Path:
    """The skills of a project, with one that can be used and one that cannot."""
    folder = tmp_path / "project" / ".worldagent" / "skills"
    for name, text in (("tea", "---\nname: tea\ndescription: Makes tea.\n---\nBoil water.\n"), ("bad", "x")):
        (folder / name).mkdir(parents=True)
        (folder / name / "SKILL.md").write_text(text)
    monkeypatch.chdir(tmp_path / "project")
    return folder


async def test_skills_are_listed_shown_and_checked_once_trusted(run: Run, skills: Path) -> None:
    for command in ("list", "check"):
        before = await run("skills", command)
        assert before.stdout == "there are no skills\n"
        assert "is not trusted, so its skills have no effect; review them with `worldagent trust add`" in before.stderr
    assert (await run("trust", "add", "--yes")).exit_code == 0
    listed = (await run("skills", "list")).stdout.splitlines()
    assert listed[0].startswith("bad  project  [cannot be used]")
    assert listed[1] == "tea  project  Makes tea."
    shown = (await as_json(run, "skills", "show", "tea"))["skill"]
    assert (shown["name"], shown["instructions"], len(shown["version"])) == ("tea", "Boil water.", 64)
    assert (await refusal(run, "skills", "show", "te"))["code"] == "skill_invalid"
    checked = (await as_json(run, "skills", "check", code=2))["checked"]
    assert [(Path(each["folder"]).name, len(each["problems"])) for each in checked] == [("bad", 1), ("tea", 0)]
    assert (await run("skills", "check", str(skills / "tea"))).exit_code == 0
    assert (await as_json(run, "skills", "check", str(skills), code=2))["checked"] == checked
    (skills / "milk").mkdir()
    (skills / "milk" / "SKILL.md").write_text(
        "---\nname: cream\ndescription: Makes cream.\nmodel: best\n---\nBeat it.\n"
    )
    [cream] = (await as_json(run, "skills", "check", str(skills / "milk")))["checked"]
    assert [each["message"].partition("SKILL.md:")[2] for each in cream["warnings"]] == [
        "4: the key 'model' has no effect here",
        "2: the name 'cream' is not that of its folder 'milk'",
    ]
    said = await run("skills", "check", str(skills / "milk"))
    assert (said.exit_code, said.stderr.count("warning: "), said.stdout) == (0, 2, f"{skills / 'milk'}\n")
    (skills / "tea" / "notes.md").write_text("x")
    assert "changed after you trusted it, so its skills have no effect" in (await run("skills", "list")).stderr


async def test_a_skill_is_run(run: Run, skills: Path) -> None:
    assert (await run("trust", "add", "--yes")).exit_code == 0
    result = await run("skills", "run", "tea", "Two cups.")
    assert result.exit_code == 0, result.output
    assert result.stdout.strip()
    assert (await refusal(run, "skills", "run", "coffee", "x"))["code"] == "unknown_skill"
    assert (await refusal(run, "skills", "run", "tea"))["code"] == "invalid_argument"
