"""The context of a graph that runs the agent: whose turn it is.

`agent.graph()` reads the contexts of all graphs that it is a part of; a node of `agent.as_node()` takes only the role
from one that is no `GraphContext`, because `account` can mean something else there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import SkipJsonSchema

from ..core.errors import InvalidArgument, RoleInvalid
from ..role_resolution import Role
from ..role_resolution.role import check_role

if TYPE_CHECKING:
    from ..graphs.outer import OuterRuntime


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphContext:
    """The context of a run of `agent.graph()`: `graph.ainvoke(state, config, context=GraphContext(account="ana"))`.

    LangGraph does not store it. A LangGraph server does, so there only `channel` and `inputs` count, and only these are
    in the schema that it shows.

    Attributes:
        account: The account that speaks. On a server it is the authenticated user.
        channel: Where the conversation takes place.
        role: The role of this one turn. A server refuses it.
        inputs: The further inputs of the class in `WorldAgent(converse=...)`, by name (T20).
    """

    account: SkipJsonSchema[str | None] = None
    channel: str | None = None
    role: SkipJsonSchema[Role | None] = field(default=None, repr=False)
    inputs: Mapping[str, Any] | None = None


def context_of(runtime: OuterRuntime, *, own: bool = False, account: str | None = None) -> GraphContext:
    """Read the context of the graph whose node runs the agent.

    Args:
        runtime: The graph's runtime.
        own: Whether the node is that of `agent.graph()`.
        account: The account of runs that name none.

    Raises:
        RoleInvalid, InvalidArgument: The role is of another type, or a client of a server sent a role or an account.
    """
    from ..graphs.outer import server_user

    given = runtime.context
    if not own and not isinstance(given, GraphContext):
        return GraphContext(role=role_in(given))
    speaks = _field(given, "account")
    if runtime.server_info is not None:
        refuse_sent(speaks, _field(given, "role"))
        speaks = server_user(runtime)
    inputs = given.inputs if isinstance(given, GraphContext) else None
    speaks = account if speaks is None else speaks
    return GraphContext(account=speaks, channel=_field(given, "channel"), role=role_in(given), inputs=inputs)


def role_in(context: object) -> Role | None:
    """Return the role in the context of a graph: a role, or an object or mapping with `role`.

    Raises:
        RoleInvalid: What it has as `role` is of another type.
    """
    if isinstance(context, Role):
        return context
    found = _field(context, "role")
    return None if found is None else check_role(found)


def _field(context: object, name: str) -> Any:
    return context.get(name) if isinstance(context, Mapping) else getattr(context, name, None)


def refuse_sent(account: object, role: object) -> None:
    """Refuse what a client sent to a server in the context of a run. The server has stored it already.

    Args:
        account: The `account` of the context.
        role: The `role` of the context.

    Raises:
        RoleInvalid: There is a role.
        InvalidArgument: There is an account.
    """
    if role is not None:
        raise RoleInvalid(
            "a client sent a role in the context of a run on a server, which stores that context",
            remedy="delete the run on the server, and store the role in the agent instead, as that of the account, the "
            "channel or the workspace",
        )
    if account is not None:
        raise InvalidArgument(
            "a client named an account in the context of a run on a server",
            remedy="omit it: the account is the user that the server has authenticated",
        )
