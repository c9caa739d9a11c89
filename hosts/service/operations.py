"""The table of operations. From it come the sidecar's tools, the paths of the web app, and the commands.

Each area's module has its operations beside the functions that run them. A server can have more: `table` joins them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, TypeAlias

from ...agent.asking import Asking
from ...agent.capabilities import named_capability
from ...agent.runtime.inside import inside
from ...core.errors import CapabilityFailed, InvalidArgument, NameTaken, WorldAgentError
from . import (
    background,
    board,
    budgets,
    cases,
    drafts,
    events,
    following,
    functions,
    inbox,
    memory,
    roles,
    schedules,
    skills,
    society,
    threads,
    traces,
    trying,
    turns,
)
from .call import Call, Refused
from .operation import Operation, Run
from .records import Answer

Operations: TypeAlias = Mapping[str, Operation]

_LOG: Final = logging.getLogger("worldagent.hosts")

_AREAS: Final = (
    threads,
    inbox,
    background,
    following,
    traces,
    roles,
    skills,
    functions,
    schedules,
    memory,
    board,
    society,
    drafts,
    budgets,
    events,
    cases,
    trying,
)


def table(*more: Iterable[Operation]) -> Operations:
    """Return operations by name.

    Args:
        more: Their sources, such as the table of the package and the operations of a capability.

    Raises:
        NameTaken: Two have the same name.
    """
    found: dict[str, Operation] = {}
    for each in (each for source in more for each in source):
        if each.name in found:
            raise NameTaken(f"there are two operations {each.name!r}", remedy="give each a name of its own")
        found[each.name] = each
    return found


_OWN: Final = table(
    turns.OPERATIONS,
    *([each for each in vars(area).values() if isinstance(each, Operation)] for area in _AREAS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfOthers:
    """What hosts have of a capability of another package.

    Attributes:
        about: The first line of its docstring.
        operations: Its operations.
        page: The file of its page of the console.
    """

    about: str
    operations: tuple[Operation, ...]
    page: Path | None


@cache
def of_others() -> Mapping[str, OfOthers]:
    """The installed capabilities of other packages by name.

    One that cannot be used is left out, with a warning: it is code of others, and no host may fail by what is only
    installed.
    """
    found: dict[str, OfOthers] = {}
    for each in entry_points(group="worldagent.capabilities"):
        if each.value.startswith("worldagent."):
            continue
        try:
            kind = named_capability(each.name)
            made = tuple(_checked(one, each.name) for one in kind.operations())
            table(_OWN.values(), *(other.operations for other in found.values()), made)
            if kind.page is not None and not Path(kind.page).is_file():
                raise InvalidArgument("its page is not a file", remedy="install it again")
        except (Exception, SystemExit) as error:
            why = str(error) if isinstance(error, WorldAgentError) else f"it raised {type(error).__name__}"
            _LOG.warning("hosts leave out the capability %r: %s", each.name, why)
        else:
            about = (kind.__doc__ or "").partition("\n")[0]
            found[each.name] = OfOthers(about=about, operations=made, page=kind.page)
    return found


def _checked(operation: object, capability: str) -> Operation:
    """An operation of a capability, whose models have schemas."""
    if not isinstance(operation, Operation):
        raise InvalidArgument(
            f"`operations()` returned {type(operation).__name__!r} among its operations",
            remedy="return functions that `operation` has made operations",
        )
    for model in (operation.arguments, operation.answer):
        model.model_json_schema()
    run = None if operation.run is None else _asked(operation, operation.run, capability)
    return replace(operation, capability=capability, run=run)


def _asked(operation: Operation, run: Run, capability: str) -> Run:
    """What runs an operation of a capability, and holds what it raises and returns to what callers are told."""

    async def asked(call: Call[Any], agent: Any) -> Answer:
        answer: object = None
        refused: Refused | None = None
        with Asking(capability, inside(agent).spec.on_error)(f"the operation {operation.name!r}"):
            try:
                answer = await run(call, agent)
            except Refused as error:
                refused = error
        if refused is not None:
            raise refused
        if isinstance(answer, operation.answer):
            return answer
        raise CapabilityFailed(
            f"the operation {operation.name!r} of the capability {capability!r} returned {type(answer).__name__} "
            f"and not {operation.answer.__name__}",
            remedy="ask those who wrote the capability",
        )

    return asked


OPERATIONS: Final = table(_OWN.values(), *(each.operations for each in of_others().values()))
