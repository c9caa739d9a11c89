"""How a member is made of a template: what a person fixed, and the parameters that an agent fills in (A9)."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from ...core import digest
from ...core.checks import check_text
from ...core.errors import InvalidArgument, ParamsInvalid, SpawnForbidden, UnknownTemplate
from ..data.brief import TaskBrief
from ..data.roles import ROOT, USER, ClearanceProfile, RoleSpec, TrustProfile
from ..data.workspace import RoleTemplate, WorkspaceConfig
from .members import Member

S = TypeVar("S", RoleSpec, RoleTemplate)

MAX_PARAM: Final = 500
"""Characters of a parameter of a template."""

MAX_TEMPLATES: Final = 20
"""How many templates a model is shown at once."""


def usable_by(spawner: str, templates: Iterable[RoleTemplate]) -> list[RoleTemplate]:
    """Those of some templates of which a member, or a person, may make members.

    Args:
        spawner: The member, or `user`.
        templates: The templates.
    """
    return [each for each in templates if spawner in (USER, *each.allowed_spawners)]


def check_spawner(
    template: RoleTemplate | None, template_id: str, spawner: str, known: Iterable[str] = ()
) -> RoleTemplate:
    """Return a template that a member or a person may make members of.

    Raises:
        UnknownTemplate: There is no such template.
        SpawnForbidden: The template does not allow this member.
    """
    if template is None:
        raise UnknownTemplate(
            f"the workspace has no template {str(template_id)[:60]!r}; {spawner!r} can use:"
            f" {', '.join(known) or 'none'}",
            remedy="use one of these",
        )
    if not usable_by(spawner, [template]):
        raise SpawnForbidden(
            f"{spawner!r} cannot make members of the template {template.template_id!r}",
            remedy="ask a person to add it to `allowed_spawners`, or ask one of these members: "
            + (", ".join(template.allowed_spawners) or USER),
        )
    return template


def spec_of(
    config: WorkspaceConfig, template: RoleTemplate, params: Mapping[str, str], parent: Member | None
) -> tuple[RoleSpec, str]:
    """The definition and the name of a member that is made of a template.

    What it may do and know is never wider than what its parent may (A9).

    Args:
        config: The workspace.
        template: The template.
        params: Its parameters.
        parent: The member that makes it; None is the World Agent or a person.

    Raises:
        ParamsInvalid: A parameter is missing, not known, or not a short text.
        InvalidArgument: The name makes no id.
    """
    _check_params(template, params)
    name = _filled(template.name_pattern, params)
    role_id = id_of(name)
    above = ROOT if parent is None else parent.id
    spec = RoleSpec(
        role_id=role_id,
        workspace=config.id,
        soul=_filled(template.soul_template, params),
        domains=template.domains,
        reports_to=above,
        operator_ids=template.operator_ids,
        authority=template.authority,
        clearance=template.clearance or ClearanceProfile(),
        trust=None if template.default_trust is None else TrustProfile(default=template.default_trust),
        parent_role_id="" if parent is None else parent.id,
        created_by=above,
        ttl=template.ttl,
        routes=template.routes,
        language=template.language,
        limits=template.limits,
    )
    return (spec if parent is None else narrowed(spec, parent.spec)), name


def narrowed(one: S, above: RoleSpec) -> S:
    """A definition or template with what the one above may do, know and run, too: the narrower of each (A9, A10)."""
    return replace(
        one,
        authority=one.authority.within(above.authority),
        clearance=(one.clearance or ClearanceProfile()).within(above.clearance or ClearanceProfile()),
        operator_ids=tuple(each for each in one.operator_ids if each in above.operator_ids),
        limits=None if one.limits is None else one.limits.within(above.limits),
    )


def derived_brief(template: RoleTemplate, params: Mapping[str, str], parent: str) -> TaskBrief:
    """The brief of a child whose parent wrote none, where the policy allows that (C1)."""
    given = ", ".join(f"{name}: {params[name]}" for name in template.parameters) or "none"
    return TaskBrief(
        objective=_filled(template.soul_template, params),
        constraints="none beyond your instructions",
        inputs=given,
        outputs=f"a status_report to {parent}",
        completion_criteria="none; your work has no end",
    )


def id_of(name: str) -> str:
    """The id of a member with this name: `BDR - APAC` is `bdr-apac`. A name in another script adds its digest."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return plain if name.isascii() else f"{plain or 'member'}-{digest(name, length=8)}"


def makes(template: RoleTemplate, role_id: str) -> bool:
    """Whether a member that is made of a template can have an id."""
    parts = string.Formatter().parse(template.name_pattern)
    plain = "".join(
        re.sub(r"[^a-z0-9]+", "-", text.lower()) + ("" if name is None else "[a-z0-9-]+") for text, name, _, _ in parts
    )
    return re.fullmatch(f"{plain.strip('-')}(-[0-9a-f]{{8}})?", role_id) is not None


def _check_params(template: RoleTemplate, params: Mapping[str, str]) -> None:
    if not isinstance(params, Mapping):
        raise ParamsInvalid("`params` must be an object with a text for each parameter", remedy="pass a mapping")
    missing = [name for name in template.parameters if name not in params]
    extra = [str(name)[:60] for name in params if name not in template.parameters]
    problem = f"lack {', '.join(map(repr, missing))}" if missing else ""
    problem = problem or (f"have no {', '.join(map(repr, extra))}" if extra else "")
    for name in () if problem else template.parameters:
        try:
            check_text(name, params[name], most=MAX_PARAM)
        except InvalidArgument as error:
            problem = f"are invalid: {error.problem}"
    if problem:
        known = ", ".join(template.parameters) or "none"
        raise ParamsInvalid(
            f"the params of the template {template.template_id!r} {problem}", remedy=f"its parameters are: {known}"
        )


def _filled(pattern: str, params: Mapping[str, str]) -> str:
    """A pattern with its parameters. They are texts and are inserted as they are; nothing of them is looked up."""
    return "".join(
        text + ("" if name is None else params[name]) for text, name, _, _ in string.Formatter().parse(pattern)
    )
