"""The commands `skills list`, `show`, `check` and `run`: packages of instructions in the Agent Skills format."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import typer

from .command import Work, command
from .exits import USAGE
from .operating import ask_in
from .options import WORKSPACE, TurnOptions
from .output import Output, problem_objects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...agent import Thread, TurnStream
    from ...skills import SkillCatalogue, SkillEntry

app = typer.Typer(name="skills", no_args_is_help=True)


@app.callback()
def _skills() -> None:
    """Skills: folders with instructions, files and scripts for one kind of work.

    They are in the folder skills of your configuration, or in .worldagent/skills of a project that you trust. If names
    are equal, that of the project counts. [bold]ask[/bold], [bold]chat[/bold] and the other commands with an agent
    offer them to the conversation.

    [bold]Example[/bold]

      worldagent skills list
    """


@command(app, "list", asks=("skill_list",))
async def list_skills(output: Output) -> None:
    """List all skills with their descriptions, and what is wrong with those that cannot be used.

    `skills check` says what is not used as it is written.

    [bold]Example[/bold]

      worldagent skills list --json
    """
    entries = open_skills().entries
    longest = max((len(entry.name) for entry in entries), default=0)
    lines = [f"{entry.name.ljust(longest)}  {entry.level.ljust(7)}  {_description(entry)}" for entry in entries]
    _note_untrusted(output)
    output.result({"skills": [_object(entry) for entry in entries]}, "\n".join(lines) or "there are no skills")


@command(app, "show", asks=("skill_show",))
async def show_skill(output: Output, name: str) -> None:
    """Show a skill: what it says of itself, its version, its files and its instructions.

    [bold]Example[/bold]

      worldagent skills show meeting-notes

    Args:
        name (NAME): The name of the skill, as `skills list` shows it.
    """
    catalogue = open_skills()
    folder = str(catalogue.load(name).folder)
    found = await ask_in(SimpleNamespace(skills=catalogue, workspace=WORKSPACE), None, "skill_show", skill=name)
    about = {**found.skill.model_dump(mode="json"), "folder": folder}
    instructions = about.pop("instructions")
    lines = [f"{key}: {_line(value)}" for key, value in about.items() if value]
    output.result({"skill": {**about, "instructions": instructions}}, "\n".join([*lines, "", instructions]))


@command(app, "check")
async def check_skills(output: Output, folders: list[Path] | None = None) -> int | None:
    """Check packages by the rules of the Agent Skills format.

    It prints all problems with file and line. If one keeps a package from being used, the exit code is 2; a warning is
    about something that is not used as it is written.

    [bold]Example[/bold]

      worldagent skills check ./skills/tea

    Args:
        folders (FOLDER...): Packages, or folders with packages in them. Default: all skills that `skills list` finds.
    """
    from ...skills.package import judge_package

    if not folders:
        _note_untrusted(output)
    chosen = _packages(folders) if folders else [entry.folder for entry in open_skills().entries]
    checked = [(folder, *judge_package(folder)) for folder in chosen]
    value, fine = [], []
    for folder, header, problems in checked:
        warnings = () if header is None else header.warnings
        if output.form == "text":
            for kind, each in (*(("error", each) for each in problems), *(("warning", each) for each in warnings)):
                output.note(f"{kind}: {each.problem}\nremedy: {each.remedy}")
        fine += [str(folder)] if header is not None else []
        value.append(
            {"folder": str(folder), "problems": problem_objects(problems), "warnings": problem_objects(warnings)}
        )
    output.result({"checked": value}, "\n".join(fine) or (None if checked else "there are no skills"))
    return USAGE if len(fine) < len(checked) else None


@command(app, "run", asks=("run_skill",))
def run_skill(
    options: TurnOptions, output: Output, name: str, request: str | None = None, params: str | None = None
) -> Work:
    """Run a skill and print its reply.

    [bold]Examples[/bold]

      worldagent skills run meeting-notes 'Write the minutes of notes.txt'

      worldagent skills run tea --params '{"cups": 2}' --app kitchen:agent

    Args:
        name (NAME): The name of the skill.
        request ([REQUEST]): What it should do. A skill that declares its input takes --params.
        params (--params JSON|@FILE|-): The input that the skill declares, as a JSON object.
    """
    from ...core.errors import InvalidArgument
    from ...core.events import ModelWaiting
    from .sources import one_reader, task_params
    from .turn_run import new_turn

    if (request is None) == (params is None):
        raise InvalidArgument("a skill needs a request or its input", remedy="give either REQUEST or --params")
    one_reader(options, "--params", params)
    given = {"request": request} if params is None else task_params(params, None)

    def begin(thread: Thread, **how: Any) -> TurnStream:
        return thread.stream_skill(name, given, **how)

    return new_turn(options, output, options.thread, begin, shown=ModelWaiting)


def open_skills() -> SkillCatalogue:
    """The skills of the user, and those of the project of the current folder if it is trusted."""
    from ...profiles import find_project
    from ...skills import SkillCatalogue

    return SkillCatalogue.open(project=find_project())


def _packages(folders: Sequence[Path]) -> list[Path]:
    """The packages that are meant: each folder itself, or the packages in it."""
    from ...skills.catalogue import package_folders
    from ...skills.package import skill_file

    return [each for folder in folders for each in (not skill_file(folder) and package_folders(folder)) or [folder]]


def _note_untrusted(output: Output) -> None:
    """Say that the project of the current folder has skills without effect."""
    from ...harness.trust import SKILLS_FOLDER, ProjectTrust, find_project
    from ...skills.catalogue import package_folders

    project = find_project()
    if project is None or not package_folders(project / SKILLS_FOLDER):
        return
    standing = ProjectTrust().standing(project)
    if standing != "trusted":
        why = "changed after you trusted it" if standing == "changed" else "is not trusted"
        then = "so its skills have no effect; review them with `worldagent trust add`"
        output.note(f"note: the project {str(project)!r} {why}, {then}")


def _object(entry: SkillEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "level": entry.level,
        "folder": str(entry.folder),
        "used": entry.used,
        "description": "" if entry.header is None else entry.header.description,
        "problems": problem_objects(entry.problems),
        "warnings": problem_objects(() if entry.header is None else entry.header.warnings),
    }


def _description(entry: SkillEntry) -> str:
    if entry.header is None:
        return f"[cannot be used] {entry.problems[0].problem}"
    shown = " ".join(entry.header.description.split())
    return shown if entry.used else f"[overridden] {shown}"


def _line(value: object) -> str:
    match value:
        case dict():
            return ", ".join(f"{key}={each}" for key, each in value.items())
        case list():
            return ", ".join(map(str, value))
        case _:
            return " ".join(str(value).split())
