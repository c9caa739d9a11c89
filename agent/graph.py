"""`agent.graph()`: the agent as a LangGraph graph of messages that runs by itself, in a process or on a server.

The graph has one node, which is that of `outer`. A turn keeps its own thread, lease and journal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pydantic.json_schema import SkipJsonSchema

from ..core.errors import InvalidArgument, RoleInvalid
from ..role_resolution import Role
from .outer import node_of
from .thread import Thread

if TYPE_CHECKING:
    from ..graphs.outer import MessagesGraph, OuterRuntime
    from .agent import WorldAgent

NODE: Final = "converse"
"""The name of the graph's node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphContext:
    """The context of a run of `agent.graph()`: `graph.ainvoke(state, config, context=GraphContext(account="ana"))`.

    LangGraph does not store it. A LangGraph server does, so there only `channel` counts, and only that is in the schema
    that it shows.

    Attributes:
        account: The account that speaks. On a server it is the authenticated user.
        channel: Where the conversation takes place.
        role: The role of this one turn. A server refuses it.
    """

    account: SkipJsonSchema[str | None] = None
    channel: str | None = None
    role: SkipJsonSchema[Role | None] = field(default=None, repr=False)


def graph_of(agent: WorldAgent, turn: Any, *, checkpointer: Any, account: str | None) -> MessagesGraph:
    """Return the graph; see `WorldAgent.graph`.

    Args:
        agent: The agent.
        turn: The graph of a turn, which is shown as the node's subgraph.
        checkpointer: The checkpointer of the graph.
        account: The account of runs that name none.
    """
    from ..graphs.outer import messages_graph, outer_thread_id, server_user

    def chosen(runtime: OuterRuntime) -> Thread:
        given = runtime.context or GraphContext()
        speaks = given.account
        if runtime.server_info is not None:
            refuse_sent(given.account, given.role)
            speaks = server_user(runtime)
        return agent.thread(outer_thread_id(runtime), account=speaks or account, channel=given.channel)

    node = node_of(agent.thread, message="messages", answer="messages", thread=chosen)
    return messages_graph(NODE, node, turn, GraphContext, name=agent.workspace, checkpointer=checkpointer)


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
