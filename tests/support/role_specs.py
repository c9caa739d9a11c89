"""Members of a society, what they are made of, and their workspace, for tests."""

from dataclasses import fields
from typing import Any, Final

from worldagent.members import AuthorityConfig, RoleSpec, RoleTemplate, WorkspaceConfig, WorkspacePolicy

BRIEF: Final = {
    "objective": "A page with the menu.",
    "constraints": "A static web page, no framework.",
    "inputs": "menu.csv",
    "outputs": "index.html",
    "completion_criteria": "It opens from a file.",
}


def spec_of(role_id: str, parent: str = "", *, workspace: str = "novel", **more: Any) -> RoleSpec:
    """A member that reports to its parent, else to the owner, and can run and do nothing."""
    given: dict[str, Any] = {
        "role_id": role_id,
        "workspace": workspace,
        "soul": f"You are {role_id}.",
        "domains": (),
        "reports_to": parent,
        "operator_ids": (),
        "authority": AuthorityConfig(),
        "parent_role_id": parent,
    }
    return RoleSpec(**(given | more))


def template_of(template_id: str, *spawners: str, **more: Any) -> RoleTemplate:
    """A template for members with a name, which can run and do nothing."""
    given: dict[str, Any] = {
        "template_id": template_id,
        "name_pattern": "{name}",
        "soul_template": "You are {name}.",
        "domains": (),
        "authority": AuthorityConfig(),
        "operator_ids": (),
        "parameters": ("name",),
        "allowed_spawners": spawners,
    }
    return RoleTemplate(**(given | more))


def bdr_template(template_id: str = "bdr", **more: Any) -> RoleTemplate:
    """A template with which the member `cro` makes members for a territory."""
    given: dict[str, Any] = {"name_pattern": "BDR - {territory}", "soul_template": "You cover {territory}."}
    given |= {"domains": ("revenue",), "parameters": ("territory",)}
    return template_of(template_id, "cro", **(given | more))


def workspace_of(*templates: RoleTemplate, **more: Any) -> WorkspaceConfig:
    """The workspace `novel` of `charles` with some templates; `more` are fields of it or of its policy."""
    rules = {each.name for each in fields(WorkspacePolicy)} & more.keys()
    policy = WorkspacePolicy(**{name: more.pop(name) for name in rules})
    named = {each.template_id: each for each in templates}
    given: dict[str, Any] = {"id": "novel", "owner": "charles", "policy": policy, "role_templates": named}
    return WorkspaceConfig(**(given | more))
