"""`Roles(on_request="ask")`: a person asks in words, and their message becomes the role of the thread (R10).

Plans, params and model outputs name a message only by its id. Its text is read from the conversation (T8) after a
person has approved. `ThreadRole` does the same for code, without a model.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..core.errors import LeaseLost, UnknownMessage
from ..graphs import Shape, TaskContext
from ..harness import CallContext, Function, flow
from ..memory import Message, thread_key
from ..role_resolution import Role
from .runtime import RunnerParts

_FUNCTION: Final = "set_thread_role"
FUNCTION_DESCRIPTION: Final = "Make a message of the person's the role of its thread, from the next turn on."
_SHAPE: Final = "thread_role"
SHAPE_DESCRIPTION: Final = (
    "only where the person asks in this message for another manner for the rest of the conversation: makes this "
    "message the guide of the turns after this one, once a person has confirmed it"
)
_ID: Final = "[0-9a-f]{32}"
OWN_MESSAGE_REMEDY: Final = (
    "name a message that this account wrote on this thread, or none for the message of this turn"
)

# Only an id matches the pattern, so that no plan can carry a text.
MessageId = Annotated[str, Field(pattern=f"^{_ID}$", description="the id of the person's message")]


class RoleRequest(BaseModel):
    """The params of the shape."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    message_id: str = Field("", pattern=f"^({_ID})?$", description="leave it out; it is the message of this turn then")


class RoleRequested(BaseModel):
    """The result of the shape."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    message_id: str
    note: str


class RoleRequests:
    """A function, and a shape that reaches it, for agents whose users can ask for a role of their thread.

    Args:
        on_request: `ignore` adds neither.

    Attributes:
        functions: Makes a message the role of its thread. It requires approval.
        shapes: Checks the message and calls the function; the conversation can call it.
    """

    def __init__(self, on_request: Literal["ignore", "ask"]) -> None:
        self._parts: RunnerParts | None = None
        self.functions: tuple[Function, ...] = ()
        self.shapes: tuple[Shape[Any, Any], ...] = ()
        if on_request == "ask":
            # A flow, since a leaf does not know its thread. A repeated call is safe: it sets the same role in memory.
            decorate = flow(name=_FUNCTION, description=FUNCTION_DESCRIPTION, approval=True, offered=False)
            self.functions = (decorate(self._set),)
            self.shapes = (Shape(_SHAPE, RoleRequest, RoleRequested, self._request, description=SHAPE_DESCRIPTION),)

    def open(self, parts: RunnerParts) -> None:
        """Use the parts of a started agent."""
        self._parts = parts

    def close(self) -> None:
        """Drop the parts."""
        self._parts = None

    async def _request(self, params: RoleRequest, ctx: TaskContext) -> RoleRequested:
        # Requests that cannot succeed are refused before a person is asked.
        message = await self._find_message(ctx.calls, params.message_id)
        await ctx.call(_FUNCTION, {"message_id": message.id})
        return RoleRequested(message_id=message.id, note="This message guides the turns after this one.")

    async def _set(self, ctx: CallContext, message_id: MessageId) -> str:
        message = await self._find_message(ctx, message_id)
        parts, thread = self._opened, ctx.scope.thread
        assert thread is not None, "a turn has a thread"
        parts.resolver.threads.set(thread, _role_of(message), parts.thread_role_ttl, turn=ctx.frame.drive.turn)
        return message.id

    async def _find_message(self, ctx: CallContext, message_id: str) -> Message:
        """Return the message, if this turn's account wrote it on this thread and it can be a role.

        Raises:
            UnknownMessage: It is not in this conversation, another account wrote it, or it is not a person's message.
            RoleTooLong: It exceeds the limit of a role.
            LeaseLost: Another owner has taken over the thread.
        """
        parts = self._opened
        turn = await parts.turns.latest(thread_key(ctx.scope))
        if turn is None or turn.id != ctx.frame.drive.turn:
            raise LeaseLost(
                f"the turn {ctx.frame.drive.turn!r} no longer owns its thread", remedy="begin a new turn on it"
            )
        wanted = message_id or turn.asked
        await parts.engine.services.log.history(turn.asked, before=wanted, limit=1)  # raises if it is not found there
        message = await parts.engine.message(wanted)
        if message.kind != "message":
            raise UnknownMessage(
                f"the message {wanted!r} must be a person's message to become a role, but its kind is {message.kind!r}",
                remedy=OWN_MESSAGE_REMEDY,
            )
        if message.author != turn.author:
            raise UnknownMessage(f"the message {wanted!r} was written by another account", remedy=OWN_MESSAGE_REMEDY)
        parts.resolver.threads.check(_role_of(message))
        return message

    @property
    def _opened(self) -> RunnerParts:
        assert self._parts is not None, "calls are made inside turns of an open agent"
        return self._parts


def _role_of(message: Message) -> Role:
    return Role(f"message {message.id}", message.body["text"])


__all__ = ["RoleRequests"]
