"""Reads the file of a workspace: its policy, its first members and its templates, as YAML (A9, A1).

A file is checked completely, and each problem has its file, line and remedy. What loads has passed all checks of
`WorkspaceConfig`; a template that grants more than its spawner may only leads to a warning, because its members get
less (A9).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from ..core.errors import InvalidArgument, WorkspaceInvalid
from ..core.files import read_limited
from ..harness.yaml import LONGEST, YamlDocument, near, read_yaml
from .data.identity import looks_of, mistakable
from .data.remote import REMOTE_SOUL, exposes_token
from .data.roles import AUTHORITIES, RESERVED, SOUL_FILE, AuthorityConfig, ClearanceProfile, Participant, RoleSpec
from .data.workspace import RoleTemplate, WorkspaceConfig, circle_of
from .events.routing import route_of
from .life.spawning import makes
from .role import read_soul

MAX_PROBLEMS: Final = 20
"""The most problems that are reported of a file."""

_LOG: Final = logging.getLogger("worldagent.workspace")

_Path = tuple[str | int, ...]
_BAD: Final = object()  # stands for a value with a problem

_HIDDEN: Final = ("parent_role_id", "created_by", "untrusted")  # of spawned members alone
_OPTIONAL: Final[Mapping[str, Any]] = {
    "domains": (),
    "operator_ids": (),
    "reports_to": "",
    "authority": AuthorityConfig(),
}
"""Fields of a member or a template that a file can leave out."""

_SOULS: Final[Mapping[type, str]] = {RoleSpec: "soul", RoleTemplate: "soul_template"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceFile:
    """What a file says.

    Attributes:
        path: The file.
        config: The workspace; None if there are problems.
        problems: Why it cannot be used.
        warnings: What can be used, and is likely not meant.
        hints: What is not meant unless code adds to it. Loading the file does not log them.
    """

    path: Path
    config: WorkspaceConfig | None
    problems: tuple[WorkspaceInvalid, ...] = ()
    warnings: tuple[WorkspaceInvalid, ...] = ()
    hints: tuple[WorkspaceInvalid, ...] = ()


def load_workspace(path: str | PathLike[str]) -> WorkspaceConfig:
    """The workspace of a file, for `WorldAgent(society=...)`. Warnings about it are logged.

    Args:
        path: The file. Paths of souls are relative to its folder.

    Raises:
        WorkspaceInvalid: The file cannot be used; the text has file, line and remedy.
        MissingExtra: The extra `yaml` is not installed.
    """
    read = read_workspace(path)
    for each in read.warnings:
        _LOG.warning("%s; %s", each.problem, each.remedy)
    return _config_in(read, f": worldagent workspace check {path}")


def parse_workspace(text: str, name: str = "the file") -> WorkspaceConfig:
    """The workspace of the text of a file, which nothing else is read for.

    Args:
        text: The text of the file, at most 1 MiB.
        name: What errors call it.

    Raises:
        WorkspaceInvalid: It cannot be used, or a soul is the path of a file; the text has line and remedy.
        MissingExtra: The extra `yaml` is not installed.
    """
    return _config_in(_read(Path(name), text.encode("utf-8", "surrogatepass"), None))


def _config_in(read: WorkspaceFile, see: str = "") -> WorkspaceConfig:
    if read.config is None:
        first, *others = read.problems
        more = f" (and {len(others)} more{see})" if others else ""
        raise WorkspaceInvalid(first.problem + more, remedy=first.remedy)
    return read.config


def read_workspace(path: str | PathLike[str]) -> WorkspaceFile:
    """Read a file, with all its problems and warnings.

    Args:
        path: The file.

    Raises:
        MissingExtra: The extra `yaml` is not installed.
    """
    file = Path(path)
    return _read(file, read_limited(file, LONGEST), file.parent)


def _read(file: Path, data: bytes | str, folder: Path | None) -> WorkspaceFile:
    """Read the data of a file, or why there is none; without a folder no soul can be a file."""
    try:
        if not isinstance(data, bytes):
            raise WorkspaceInvalid(
                f"{str(file)!r} cannot be read: {data}", remedy="pass the path of a workspace's file"
            )
        document = read_yaml(data, name=str(file), error=WorkspaceInvalid)
    except WorkspaceInvalid as error:
        return WorkspaceFile(path=file, config=None, problems=(error,))
    reader = _Reader(document, folder)
    config = reader.config()
    if config is None:
        return WorkspaceFile(path=file, config=None, problems=reader.reported())
    warnings = (*_mistaken(config, document), *_exposed(config, document), *_too_wide(config, document))
    warnings += (*_wider(config, document),)
    hints = (*_unreached(config, document),)
    return WorkspaceFile(path=file, config=config, warnings=warnings, hints=hints)


class _Reader:
    """Makes a workspace of the values of a file, and collects what is wrong with them.

    Args:
        document: The file.
        folder: What paths of souls are relative to; None reads no file.
    """

    def __init__(self, document: YamlDocument[WorkspaceInvalid], folder: Path | None) -> None:
        self._problems: list[tuple[_Path, str, str]] = []
        self._document = replace(document, lines={(): 1, **document.lines})  # an empty file has a first line, too
        self._folder = folder

    def config(self) -> WorkspaceConfig | None:
        """The workspace; None if there are problems."""
        made = self._object(WorkspaceConfig, self._document.data, ())
        if made is _BAD:
            return None
        self._check_members(made)
        self._check_spawners(made)
        return None if self._problems else made

    def reported(self) -> tuple[WorkspaceInvalid, ...]:
        """The problems by their lines."""
        lines = self._document.lines
        found = sorted(
            self._problems, key=lambda each: max(lines.get(each[0][:end], 0) for end in range(len(each[0]) + 1))
        )
        return tuple(self._document.invalid(problem, remedy, *path) for path, problem, remedy in found[:MAX_PROBLEMS])

    # --- values -------------------------------------------------------------------------------------------------------

    def _value(self, said: Any, hint: Any, path: _Path) -> Any:
        """A value of a type; `_BAD` after adding why it is not one."""
        origin, arguments = get_origin(hint), get_args(hint)
        if origin in (Union, UnionType):
            [hint] = [each for each in arguments if each is not NoneType]
            return self._value(said, hint, path)
        if is_dataclass(hint) and isinstance(hint, type):
            return self._object(hint, said, path)
        if origin is tuple and isinstance(said, list):
            made = [self._value(each, arguments[0], (*path, place)) for place, each in enumerate(said)]
            return _BAD if _BAD in made else tuple(made)
        if _is_mapping(hint) and isinstance(said, dict):
            values = {key: self._value(each, arguments[1], (*path, key)) for key, each in said.items()}
            return _BAD if _BAD in values.values() else values
        if not _fits(said, hint):
            quoted = "a text in quotes" if hint is str else _words(hint)
            return self._bad(f"{_dotted(path)} must be {_words(hint)}", f"write {quoted}", path)
        return said

    def _object(self, kind: type, said: Any, path: _Path) -> Any:
        """An object of a mapping; `_BAD` after adding all that is wrong with it."""
        if not isinstance(said, dict):
            return self._bad(f"{_dotted(path)} must be a mapping", "write 'key: value' lines", path)
        known, given = _keys(kind), self._given_by_place(kind, path)
        for key in said:
            if key not in known:
                remedy = f"{near(key, known)}the keys are: {', '.join(known)}"
                given["?"] = self._bad(f"{_dotted(path)} has no key {key[:80]!r}", remedy, (*path, key))
        for key, each in known.items():
            if said.get(key) is not None:
                given[each.name] = self._value(said[key], each.type, (*path, key))
            elif each.required and kind in _SOULS and key in _OPTIONAL:
                given[each.name] = _OPTIONAL[key]
            elif kind is RoleSpec and key == "soul" and said.get("remote") is not None:
                given[each.name] = REMOTE_SOUL
            elif each.required:
                given[each.name] = self._bad(f"{_dotted(path)} lacks {key!r}", f"add a line '{key}: ...'", path)
        if _BAD in given.values():
            return _BAD
        return self._made(kind, given, path) if kind not in _SOULS else self._member(kind, given, path)

    def _given_by_place(self, kind: type, path: _Path) -> dict[str, Any]:
        """The fields that are not in the mapping itself."""
        if kind is RoleTemplate:
            return {"template_id": path[-1]}
        if kind is RoleSpec:
            workspace = self._document.data.get("workspace")
            return {"workspace": workspace if isinstance(workspace, str) else "unknown"}  # and has its own problem
        return {"type": "human"} if kind is Participant else {}

    def _member(self, kind: type, given: dict[str, Any], path: _Path) -> Any:
        """A member or a template: its soul can be a file, and its routes must lead to its operators."""
        soul, before = _SOULS[kind], len(self._problems)
        try:
            if self._folder is None and SOUL_FILE.fullmatch(given[soul]):
                raise InvalidArgument(
                    "the soul is the path of a file, which is not there", remedy="write the soul itself"
                )
            given[soul] = read_soul(given[soul], self._folder)
        except InvalidArgument as error:
            self._bad(error.problem, error.remedy, (*path, soul))
        known = ", ".join(given["operator_ids"]) or "none"
        for place, each in enumerate(given.get("routes", ())):
            if each.operator not in given["operator_ids"]:
                problem = f"the route of {each.event!r} leads to {each.operator!r}, which is not in `operator_ids`"
                self._bad(problem, f"add it there, or use one of: {known}", (*path, "routes", place))
        return self._made(kind, given, path) if len(self._problems) == before else _BAD

    def _made(self, kind: type, given: Mapping[str, Any], path: _Path) -> Any:
        try:
            return kind(**given)
        except InvalidArgument as error:
            problem, remedy = error.problem, error.remedy
        if kind is WorkspaceConfig:
            path = self._place_of(re.findall(r"'([^']+)'", problem), given)
        named = [key for key in re.findall(r"\w+", problem) if (*path, key) in self._document.lines]
        return self._bad(problem, remedy, (*path, *named[:1]))

    def _place_of(self, ids: Sequence[str], given: Mapping[str, Any]) -> _Path:
        """Where the last member or person with one of some ids is; the file itself if there is none."""
        people, roles = given.get("people", ()), given.get("roles", ())
        places: dict[str, _Path] = {each.id: ("people", place) for place, each in enumerate(people)}
        places |= {each.role_id: ("roles", place) for place, each in enumerate(roles)}
        return next((places[each] for each in ids if each in places), ())

    def _bad(self, problem: str, remedy: str, path: _Path) -> object:
        self._problems.append((path, problem, remedy))
        return _BAD

    # --- how the parts fit --------------------------------------------------------------------------------------------

    def _check_members(self, config: WorkspaceConfig) -> None:
        people = (config.owner, *RESERVED, *(each.id for each in config.people))
        known = (*people, *(each.role_id for each in config.roles))
        for place, each in enumerate(config.roles):
            if each.reports_to and each.reports_to not in known:
                remedy = f"{near(each.reports_to, known)}name a member or person of this file"
                problem = f"{each.role_id!r} reports to {each.reports_to!r}, which the workspace does not have"
                self._bad(problem, remedy, ("roles", place, "reports_to"))
        circle = circle_of(config.roles)
        if circle:
            place = config.roles.index(circle[0])
            names = ", ".join(repr(each.role_id) for each in circle)
            problem = f"{names} report to each other in a circle"
            self._bad(problem, "let one of them report to the owner", ("roles", place, "reports_to"))
        if len(config.roles) > config.policy.max_roles:
            problem = f"there are {len(config.roles)} roles, and the policy allows {config.policy.max_roles}"
            self._bad(problem, "raise `max_roles`", ("policy", "max_roles"))

    def _check_spawners(self, config: WorkspaceConfig) -> None:
        for key, template in config.role_templates.items():
            for place, spawner in enumerate(template.allowed_spawners):
                if spawner not in (*RESERVED, config.owner) and not limit_of(config, spawner):
                    known = [each.role_id for each in config.roles]
                    problem = f"the template {key!r} allows the spawner {spawner!r}, which no role or template makes"
                    remedy = f"{near(spawner, known)}the roles are: {', '.join(known) or 'none'}"
                    self._bad(problem, remedy, ("role_templates", key, "allowed_spawners", place))


@dataclass(frozen=True, slots=True)
class _Key:
    """A key of a mapping: the field that it sets, its type, and whether the field has no default."""

    name: str
    type: Any
    required: bool


@cache
def _keys(kind: type) -> Mapping[str, _Key]:
    hints, set_by_place = get_type_hints(kind), _BY_PLACE.get(kind, ())
    return {
        "workspace" if (kind is WorkspaceConfig and each.name == "id") else each.name: _Key(
            each.name, hints[each.name], _is_required(each)
        )
        for each in fields(kind)
        if each.name not in (*set_by_place, *_HIDDEN)
    }


_BY_PLACE: Final[Mapping[type, tuple[str, ...]]] = {
    RoleSpec: ("workspace",),
    RoleTemplate: ("template_id",),
    Participant: ("type",),
}


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _is_mapping(hint: Any) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _fits(said: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return said in get_args(hint)
    if hint is float:
        return isinstance(said, int | float) and not isinstance(said, bool)
    if hint is Any:
        return True
    return isinstance(hint, type) and isinstance(said, hint) and (hint is bool or not isinstance(said, bool))


def _words(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return f"one of {', '.join(get_args(hint))}"
    if get_origin(hint) is tuple:
        return f"a list, each item {_words(get_args(hint)[0])}"
    return _WORDS.get(hint, "a mapping of keys and values")


_WORDS: Final[Mapping[Any, str]] = {
    str: "a text",
    float: "a number",
    int: "a whole number",
    bool: "true or false",
}


def _dotted(path: _Path) -> str:
    return repr(".".join(map(str, path))[:200]) if path else "the file"


# --- warnings ---------------------------------------------------------------------------------------------------------


def _mistaken(config: WorkspaceConfig, document: YamlDocument[WorkspaceInvalid]) -> Iterator[WorkspaceInvalid]:
    """A warning for each member and person that cannot join as it is called; one that has joined stays."""
    named = {("people", place): (each.id, each.name) for place, each in enumerate(config.people)}
    named |= {("roles", place): (each.role_id, "") for place, each in enumerate(config.roles)}
    looks = looks_of(named.values())
    for path, (id_, name) in named.items():
        problem = mistakable(id_, name, owner=config.owner, others=looks)
        if problem:
            yield document.invalid(problem, "it cannot join a new workspace: use another id or name", *path)


def _exposed(config: WorkspaceConfig, document: YamlDocument[WorkspaceInvalid]) -> Iterator[WorkspaceInvalid]:
    """A warning for each remote member whose token can be read on its way (A22)."""
    for place, role in enumerate(config.roles):
        if role.remote is not None and exposes_token(role.remote):
            problem = f"the token of {role.role_id!r} is sent to {role.remote.host!r} without encryption"
            yield document.invalid(problem, "use the https address of the card", "roles", place, "remote")


def _unreached(config: WorkspaceConfig, document: YamlDocument[WorkspaceInvalid]) -> Iterator[WorkspaceInvalid]:
    """A hint for each member and template that events do not reach, or not all of it, unless code decides (A2)."""
    first: dict[str, str] = {}
    for place, role in enumerate(config.roles):
        others = {first.setdefault(domain, role.role_id) for domain in role.domains}
        if others and role.role_id not in others:
            owners = ", ".join(map(repr, sorted(others)))
            yield document.invalid(
                f"no event goes to {role.role_id!r} first: those of its domains go to {owners}",
                "give it a domain of its own, or name it where events are posted",
                *("roles", place, "domains"),
            )
    found: dict[_Path, RoleSpec | RoleTemplate] = {("roles", place): each for place, each in enumerate(config.roles)}
    found |= {("role_templates", key): each for key, each in config.role_templates.items()}
    for path, each in found.items():
        id_ = repr(each.role_id if isinstance(each, RoleSpec) else each.template_id)
        listed = (*each.authority.autonomous, *each.authority.needs_approval)
        named = any(route_of(each, type_) for type_ in listed)
        if each.routes and not each.domains:
            problem = f"{id_} has `routes` and no `domains`, so no event reaches them"
            yield document.invalid(problem, "add its domains", *path, "routes")
        elif each.domains and each.operator_ids and not each.routes and not named:
            yield document.invalid(
                f"{id_} has domains and operators, and no `routes`, so each event is escalated whose type is not the id"
                " of an operator",
                "say with `routes` which event runs which operator, or leave this to the code of a class",
                *path,
            )
        for place, one in enumerate(each.routes):
            before = next((other for other in each.routes[:place] if _covers(other.event, one.event)), None)
            if before is not None:
                problem = f"the route of {one.event!r} is never used, because that of {before.event!r} comes first"
                yield document.invalid(problem, "put the narrower one first, or remove it", *path, "routes", place)


def _covers(glob: str, other: str) -> bool:
    """Whether a glob surely fits all that another one fits."""
    return not set("?[") & {*glob} and fnmatchcase(other, glob)


# --- ceilings ---------------------------------------------------------------------------------------------------------


def limit_of(config: WorkspaceConfig, spawner: str) -> RoleSpec | RoleTemplate | None:
    """What limits the members that a spawner makes: its definition, or the template that it is made of.

    Args:
        config: The workspace.
        spawner: The id of a member. The World Agent and people limit nothing, so for them it is None.
    """
    for role in config.roles:
        if role.role_id == spawner:
            return role
    return next((each for each in config.role_templates.values() if makes(each, spawner)), None)


def _too_wide(config: WorkspaceConfig, document: YamlDocument[WorkspaceInvalid]) -> Iterator[WorkspaceInvalid]:
    """A warning for each spawner of a template that lacks what the template grants (A9)."""
    for key, template in config.role_templates.items():
        for spawner in template.allowed_spawners:
            above = limit_of(config, spawner)
            for field, lacking in () if above is None else _lacking(template, above):
                yield document.invalid(
                    f"the template {key!r} grants what its spawner {spawner!r} lacks: {lacking}",
                    "members get the narrower of the two; give it to the spawner, or take it out of the template",
                    *("role_templates", key, field),
                )


def _wider(config: WorkspaceConfig, document: YamlDocument[WorkspaceInvalid]) -> Iterator[WorkspaceInvalid]:
    """A warning for each member whose limits are wider than those of the member that it reports to (A16)."""
    known = {each.role_id: each for each in config.roles}
    for place, role in enumerate(config.roles):
        above = known.get(role.reports_to)
        if role.limits is not None and above is not None and role.limits.within(above.limits) != role.limits:
            yield document.invalid(
                f"the limits of {role.role_id!r} are wider than those of {above.role_id!r}, which it reports to",
                "both hold, so lower the ones or raise the others",
                *("roles", place, "limits"),
            )


def _lacking(template: RoleTemplate, above: RoleSpec | RoleTemplate) -> Iterator[tuple[str, str]]:
    """What a template grants and the one above does not, by the field of the template."""
    cut = template.authority.within(above.authority)
    wide = {each: cut.of(each) for level in AUTHORITIES for each in getattr(template.authority, level)}
    found = [f"{each} ({level} there)" for each, level in wide.items() if level != template.authority.of(each)]
    if found:
        yield "authority", ", ".join(found)
    operators = [each for each in template.operator_ids if each not in above.operator_ids]
    if operators:
        yield "operator_ids", ", ".join(operators)
    own, limit = template.clearance or ClearanceProfile(), above.clearance or ClearanceProfile()
    less = own.within(limit)
    if template.limits is not None and template.limits.within(above.limits) != template.limits:
        yield "limits", "more than its own budget"
    domains = [each for each in (*own.domains, *limit.domains) if less.of(each) != own.of(each)]
    if domains or less.default != own.default:
        yield "clearance", ", ".join(dict.fromkeys(domains)) or "default"
