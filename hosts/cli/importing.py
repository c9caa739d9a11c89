"""The command `import`: files of other programs as profiles and skills."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from .command import command
from .output import Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...profiles.importing import Imported

app = typer.Typer()


@command(app, "import", panel="Configuration")
async def import_files(
    output: Output, files: list[Path], to: Path | None = None, prefix: str = "", set: list[str] | None = None
) -> None:
    """Write profiles and skills from files of other programs.

    An agent of CrewAI and a role of ouro become a profile, a task of CrewAI becomes a skill, whose placeholders are its
    input. What has no counterpart is left out, and notes name it. Nothing is written if a profile or a skill of one of
    the names exists.

    [bold]Examples[/bold]

      worldagent import config/agents.yaml config/tasks.yaml --set topic=tea

      worldagent import ~/.ouro/roles/searcher.yaml --prefix ouro-

    Args:
        files (FILE...): Files of CrewAI (agents.yaml, tasks.yaml) or roles of ouro.
        to (--to FOLDER): Write to profiles and skills of this folder. Default: your configuration folder.
        prefix (--prefix TEXT): Put before each name, such as ouro-.
        set (--set NAME=TEXT): Put in for {NAME} in prompts. Repeatable.
    """
    from ...profiles.importing import imported
    from .sources import pair

    values = dict(pair("--set", each) for each in set or ())
    made = [each for file in files for each in imported(file.expanduser(), prefix=prefix, values=values)]
    _check_new(made, to)
    for each in made:
        for path, text in each.files.items():
            target = _target(each, to) / path  # of a profile, the path is empty
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("x", encoding="utf-8") as written:
                written.write(text)
    shown = [
        {"kind": each.kind, "name": each.name, "file": str(_target(each, to)), "from": each.where}
        | {"notes": list(each.notes)}
        for each in made
    ]
    for each in made:
        for note in each.notes:
            output.note(f"note: {each.where}: {note}")
    output.result({"imported": shown}, "\n".join(f"{each['kind']} {each['name']}: {each['file']}" for each in shown))


def _target(each: Imported, to: Path | None) -> Path:
    """Where a profile's file or a skill's folder goes."""
    from ...agent import Settings
    from ...harness.trust import user_folder

    own = Settings().profiles
    if each.kind == "profile":
        folder = user_folder() / "profiles" if own is None else own.expanduser()
        return (folder if to is None else to.expanduser() / "profiles") / f"{each.name}.yaml"
    return (user_folder() if to is None else to.expanduser()) / "skills" / each.name


def _check_new(made: Sequence[Imported], to: Path | None) -> None:
    """Refuse names that exist, also those of profiles that ship."""
    from ...core.errors import NameTaken
    from ...profiles import Profiles

    seen = set[Path]()
    for each in made:
        target = _target(each, to)
        taken = target.exists() or target in seen
        if taken or (each.kind == "profile" and each.name in Profiles.open(user=target.parent).names):
            raise NameTaken(
                f"{each.where}: there is a {each.kind} {each.name!r} already",
                remedy="give --prefix TEXT, or rename or remove the other one",
            )
        seen.add(target)
