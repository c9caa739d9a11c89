"""The commands of `workspace` on its file, and on what its members did. None needs a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from .command import command
from .exits import USAGE
from .operating import ask, fields_of
from .options import ThreadsOptions
from .output import Output, problem_objects, records_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...members.data.roles import AuthorityConfig, RoleSpec
    from ...members.data.workspace import RoleTemplate, WorkspaceConfig
    from ..service.society import TrustRecord

_OUTCOMES: Final = {
    "EPISODE": "episode_id",
    "CAPABILITY": "capability",
    "CHANGE": lambda each: f"{each.change:+.2f}" if each.change else "",
    "TRUST": lambda each: f"{each.trust:.2f}",
    "WHY": "reason",
}

app = typer.Typer(name="workspace", no_args_is_help=True)


@app.callback()
def _workspace() -> None:
    """Workspaces of autonomous roles: their members, templates and rules in a YAML file, and what they did.

    [bold]Example[/bold]

      worldagent workspace check team.yaml
    """


@command(app, "check")
async def check(output: Output, files: list[Path]) -> int | None:
    """Check files of workspaces.

    It prints the problems with file and line, and the exit code is then 2. Wrong keys and values come first: correct
    them and check again for the rest. A template that grants what its spawner lacks is a warning, since its members get
    the narrower of the two.

    [bold]Example[/bold]

      worldagent workspace check team.yaml

    Args:
        files (FILE...): The files of workspaces.
    """
    from ...members.workspace_file import read_workspace

    read = [read_workspace(file) for file in files]
    for one in read if output.form == "text" else ():
        for kind, found in (("error", one.problems), ("warning", (*one.warnings, *one.hints))):
            for each in found:
                output.note(f"{kind}: {each.problem}\nremedy: {each.remedy}")
    fine = [str(each.path) for each in read if each.config is not None]
    value = [
        {
            "file": str(each.path),
            "problems": problem_objects(each.problems),
            "warnings": problem_objects((*each.warnings, *each.hints)),
        }
        for each in read
    ]
    output.result({"checked": value}, "\n".join(fine) or None)
    return USAGE if len(fine) < len(files) else None


@command(app, "show")
async def show(output: Output, file: Path) -> None:
    """Show the members of a workspace's file: who reports to whom, their domains, and what they may do.

    What is not listed needs approval. Of a template it shows what a member may do that a spawner makes: the narrower
    of what the template and the spawner may.

    [bold]Example[/bold]

      worldagent workspace show team.yaml

    Args:
        file (FILE): The file of a workspace.
    """
    from ...core.checks import to_json
    from ...members.workspace_file import load_workspace

    config = load_workspace(file)
    value = to_json(config)
    value["made"] = [
        {
            "template": template.template_id,
            "spawner": spawner,
            "authority": to_json(_ceiling(config, template, spawner)),
        }
        for template in config.role_templates.values()
        for spawner in template.allowed_spawners
    ]
    output.result({"workspace": value}, "\n".join(_text(config)))


@command(app, "outcomes", asks=("society_outcomes",))
async def outcomes(options: ThreadsOptions, output: Output, member: str) -> None:
    """List what a member did, the oldest first, and what each of it did to the trust in the member.

    With --json also when, and the turns.

    [bold]Example[/bold]

      worldagent workspace outcomes cro

    Args:
        member (MEMBER): The id of the member.
    """
    found = await ask(options, "society_outcomes", member=member)
    shown = records_table(_OUTCOMES, found.outcomes, f"{member} has done nothing yet")
    output.result(fields_of(found), f"{shown}\n\n{_trust(found.trust)}")


@command(app, "feedback", asks=("society_feedback",))
async def feedback(options: ThreadsOptions, output: Output, episode: str, feedback: str) -> None:
    """Rate what a member did. It counts in place of the outcome, and of earlier feedback.

    Good adds 0.05 to the trust in the capability, and bad takes 0.15.

    [bold]Example[/bold]

      worldagent workspace feedback event.lead-7 good

    Args:
        episode (EPISODE): The id of what a member did, as `workspace outcomes` lists it.
        feedback (good|bad|none): What you think of it; none takes it back.
    """
    found = await ask(options, "society_feedback", episode=episode, feedback=None if feedback == "none" else feedback)
    output.result(fields_of(found), _trust(found.trust))


def _trust(trust: TrustRecord) -> str:
    scores = [f"{name} {score:.2f}" for name, score in sorted(trust.scores.items())]
    return f"trust: {', '.join([*scores, f'anything else {trust.default:.2f}'])}"


# --- the text ---------------------------------------------------------------------------------------------------------


def _text(config: WorkspaceConfig) -> Iterator[str]:
    title = config.id if config.name == config.id else f"{config.id} ({config.name})"
    yield f"{title}, owned by {config.owner}"
    names = [each.role_id for each in config.roles]
    above: dict[str, list[RoleSpec]] = {}
    for role in config.roles:
        superior = config.owner if role.reports_to in ("", "user") else role.reports_to
        above.setdefault(superior, []).append(role)
    for superior in (each for each in above if each not in names):
        yield ""
        yield superior
        yield from _below(above, superior, "  ")
    for template in config.role_templates.values():
        yield ""
        yield from _template(config, template)


def _below(above: dict[str, list[RoleSpec]], superior: str, indent: str) -> Iterator[str]:
    """The members that report to one, each with those that report to it."""
    for role in above.get(superior, ()):
        yield f"{indent}{role.role_id}"
        remote = () if role.remote is None else (role.remote.card,)
        rows: dict[str, Iterable[str]] = {"remote": remote, "domains": role.domains, "operators": role.operator_ids}
        yield from _rows(f"{indent}    ", rows)
        yield from _authority(f"{indent}    ", role.authority)
        yield from _below(above, role.role_id, f"{indent}  ")


def _template(config: WorkspaceConfig, template: RoleTemplate) -> Iterator[str]:
    yield f'template {template.template_id}: "{template.name_pattern}"'
    yield from _rows("    ", {"domains": template.domains, "operators": template.operator_ids})
    for spawner in template.allowed_spawners or ("user",):
        yield f"  made by {spawner}"
        yield from _authority("    ", _ceiling(config, template, spawner))


def _ceiling(config: WorkspaceConfig, template: RoleTemplate, spawner: str) -> AuthorityConfig:
    """What a member of a template may do that a spawner makes."""
    from ...members.workspace_file import limit_of

    limit = limit_of(config, spawner)
    return template.authority if limit is None else template.authority.within(limit.authority)


def _authority(indent: str, authority: AuthorityConfig) -> Iterator[str]:
    shown: dict[str, Any] = {
        "autonomous": authority.autonomous,
        "needs approval": authority.needs_approval,
        "forbidden": authority.forbidden,
    }
    return _rows(indent, shown)


def _rows(indent: str, rows: dict[str, Iterable[str]]) -> Iterator[str]:
    for name, values in rows.items():
        if listed := ", ".join(values):
            yield f"{indent}{name}: {listed}"
