"""The capabilities of an agent: finds installed ones, checks what they declare, and puts them in order."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import EntryPoint, entry_points
from inspect import signature
from typing import Any, Final

from ..core.capability import Capability, InputField, Runtime
from ..core.errors import InvalidArgument, NameTaken
from ..graphs import Shape
from ..harness import Function
from ..harness.guard import OnError
from ..memory.owned import check_owned
from ..storage import Schema
from ..storage.declared import declared_tables
from ..storage.schema import CAPABILITY
from .asking import Asking
from .stores import CheckpointRows

_LOG: Final = logging.getLogger("worldagent.agent")
_GROUP: Final = "worldagent.capabilities"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")


@cache
def named_capability(name: str) -> type[Capability[Any]]:
    """Return the class of an installed capability. A name of one of this package is always that one.

    Args:
        name: The name of its entry point in the group `worldagent.capabilities`.

    Raises:
        InvalidArgument: No installed package has it, several have it, its module cannot be loaded, or its entry point
            is not a capability of this name.
    """
    point = _entry_point(name)
    found: object = None
    failure = ""
    try:
        found = point.load()
    except (Exception, SystemExit) as error:  # it is code of others
        failure = type(error).__name__
    if failure:
        raise InvalidArgument(
            f"the capability {name!r} cannot be loaded: its module raised {failure}",
            remedy=f"install {_package(point)} again, or leave it out",
        )
    if not (isinstance(found, type) and issubclass(found, Capability)):
        raise InvalidArgument(
            f"the entry point {name!r} of {_package(point)} is not a subclass of Capability",
            remedy="name the class in it, such as 'module:Class'",
        )
    if (own := getattr(found, "name", None)) != name:
        raise InvalidArgument(
            f"the entry point {name!r} of {_package(point)} is the capability {own!r}", remedy="give both one name"
        )
    return found


def _entry_point(name: str) -> EntryPoint:
    known = entry_points(group=_GROUP)
    found = {each.value: each for each in known if each.name == name}
    own = [each for each in found.values() if _is_ours(each)]
    for each in found.values():
        if own and each not in own:
            _LOG.warning("%s has a capability %r, which is one of worldagent and stays it", _package(each), name)
    if own:
        return own[0]
    if len(found) > 1:
        packages = " and ".join(sorted(map(_package, found.values())))
        raise InvalidArgument(f"{packages} both have the capability {name!r}", remedy="uninstall one of them")
    for each in found.values():
        return each
    raise InvalidArgument(
        f"no installed package has the capability {name!r}",
        remedy=f"install the package that has it, again if it is new there; there are: "
        f"{', '.join(sorted(known.names))}",
    )


@cache  # looking through what is installed takes six milliseconds, and each capability of each agent is checked
def _own() -> Mapping[str, str]:
    """The classes of the capabilities of this package by name."""
    return {each.name: each.value for each in entry_points(group=_GROUP) if _is_ours(each)}


def _is_ours(point: EntryPoint) -> bool:
    return point.value.startswith("worldagent.")


def _package(point: EntryPoint) -> str:
    return "a package" if point.dist is None else f"the package {point.dist.name!r}"


def checked_capability(made: object) -> Capability[Any]:
    """Return an object that can be a capability of an agent.

    Raises:
        InvalidArgument: It is none, its name is not possible or one of this package, or its `after` is not a tuple.
    """
    kind = type(made).__name__
    if not isinstance(made, Capability):
        raise InvalidArgument(
            f"`capabilities` must hold capabilities, got {kind!r}",
            remedy="pass objects such as Memory(), or names of installed capabilities",
        )
    name: object = getattr(made, "name", None)
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise InvalidArgument(
            f"the capability {kind!r} has no possible name, got {str(name)[:80]!r}",
            remedy="give it up to 63 letters a-z, digits and _, and begin with a letter",
        )
    classes = {f"{each.__module__}:{each.__qualname__}" for each in type(made).__mro__}
    ours = _own().get(name)
    if ours is not None and ours not in classes:
        raise InvalidArgument(
            f"the capability {kind!r} has the name {name!r}, which is one of worldagent",
            remedy=f"rename it, or make it a subclass of {ours.partition(':')[2]}",
        )
    after: object = made.after
    if not isinstance(after, tuple) or not all(isinstance(each, str) for each in after):
        raise InvalidArgument(
            f"`after` of the capability {name!r} must be a tuple of names", remedy='write after = ("mcp",)'
        )
    return made


def in_order(found: Mapping[str, Capability[Any]]) -> tuple[Capability[Any], ...]:
    """Capabilities by name, each after those that it opens after."""
    needs = {name: [other for other in each.after if other in found] for name, each in found.items()}
    try:
        return tuple(found[name] for name in TopologicalSorter(needs).static_order())
    except CycleError as error:
        names = error.args[1]
    raise InvalidArgument(
        f"the capabilities {', '.join(map(repr, names))} would each open after another", remedy="change their `after`"
    )


def brought_by(
    capabilities: Iterable[Capability[Any]], runtime: Runtime, tools: Iterable[Function], on_error: OnError | None
) -> tuple[tuple[tuple[str, InputField], ...], tuple[Shape[Any, Any], ...], tuple[Function, ...]]:
    """The inputs of capabilities, each with the name of its capability, their shapes and functions.

    Raises:
        NameTaken: A function has the name of another one, or of one of the agent's own tools.
    """
    owners = {each.name: "the agent" for each in tools}
    fields: list[tuple[str, InputField]] = []
    shapes: list[Shape[Any, Any]] = []
    functions: list[Function] = []
    for each in capabilities:
        ask = Asking(each.name, on_error)
        with ask("`fields`"):
            fields += ((each.name, field) for field in ask.fields(each.fields(runtime)))
        with ask("`shapes`"):
            shapes += each.shapes(runtime)
        with ask("`functions`"):
            for function in each.functions(runtime):
                if function.name in owners:
                    raise NameTaken(
                        f"the capability {each.name!r} has a function {function.name!r}, and so has "
                        f"{owners[function.name]}",
                        remedy="rename one of them, or leave one out",
                    )
                owners[function.name] = f"the capability {each.name!r}"
                functions.append(function)
    return tuple(fields), tuple(shapes), tuple(functions)


_CHECKPOINTS: Final = (*CheckpointRows(True).tables, *CheckpointRows(False).tables, "checkpoint_migrations")


def schema_of(capability: Capability[Any] | type[Capability[Any]]) -> Schema:
    """The part of the database that a capability has."""
    return Schema(f"{CAPABILITY}{capability.name}", capability.migrations)


def tables_made(capability: Capability[Any] | type[Capability[Any]]) -> Mapping[str, Sequence[str]]:
    """The columns of the tables that the migrations of a capability make, by the table's name.

    Raises:
        InvalidArgument: A migration cannot be used, or it owns rows of another table.
    """
    tables = declared_tables(capability.name, capability.migrations, reserved=_CHECKPOINTS)
    made = {table.name.lower(): table.columns for table in tables}
    check_owned(capability.name, capability.owned, made)
    return made


def installed_schemas(names: Iterable[str], database: str) -> tuple[Schema, ...]:
    """The parts of installed capabilities.

    Args:
        names: The names of the parts of a database.
        database: The database's name, for errors.

    Raises:
        InvalidArgument: It has a part of a capability that is not installed, or whose tables cannot be copied.
    """
    known = entry_points(group="worldagent.capabilities").names
    found: list[Schema] = []
    for each in (name.removeprefix(CAPABILITY) for name in sorted(names) if name.startswith(CAPABILITY)):
        if each not in known:
            raise InvalidArgument(
                f"database {database!r} has tables of the capability {each!r}, which no installed package has",
                remedy="install the package that has it, so that its tables are copied as well",
            )
        kind = named_capability(each)
        tables_made(kind)
        found.append(schema_of(kind))
    return tuple(found)


def made_by_name(name: str, on_error: OnError | None) -> Capability[Any]:
    """An installed capability that is named and gets no arguments."""
    kind = named_capability(name)
    try:
        signature(kind).bind()
    except TypeError:
        pass
    else:
        with Asking(name, on_error)("the constructor"):
            return kind()
    raise InvalidArgument(
        f"the capability {name!r} needs arguments, so that its name alone does not switch it on",
        remedy=f"pass an object, such as capabilities=[{kind.__name__}(...)]",
    )
