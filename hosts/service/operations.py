"""The table of operations. From it come the sidecar's tools, the paths of the web app, and the commands.

Each area's module has its operations beside the functions that run them. A server can have more: `table` joins them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final, TypeAlias

from ...core.capability import Capability
from ...core.errors import NameTaken
from . import drafts, events, following, functions, memory, roles, schedules, skills, society, threads, traces, turns
from .operation import Operation

Operations: TypeAlias = Mapping[str, Operation]

_LOG: Final = logging.getLogger("worldagent.hosts")

_AREAS: Final = (threads, following, traces, roles, skills, functions, schedules, memory, society, drafts, events)


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


@cache
def of_others() -> Mapping[str, type[Capability[Any]]]:
    """The installed capabilities of other packages by name. One that cannot be loaded is left out, with a warning."""
    found: dict[str, type[Capability[Any]]] = {}
    for each in entry_points(group="worldagent.capabilities"):
        if not each.value.startswith("worldagent."):
            try:
                found[each.name] = each.load()
            except Exception as error:  # it is code of others, and no host may fail by it
                _LOG.warning("the capability %r cannot be loaded: %s", each.name, type(error).__name__)
    return found


OPERATIONS: Final = table(
    turns.OPERATIONS,
    *([each for each in vars(area).values() if isinstance(each, Operation)] for area in _AREAS),
    *(each.operations() for each in of_others().values()),
)
