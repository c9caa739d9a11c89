"""What passes between members, as events: of the turn whose call sent it, or of a trace without a turn (H5).

An event has ids, types and counts. The text of a message goes to the trace alone, and only if inputs are captured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ...core import Emitter
from ...core.events import MessageRefused, MessageSent
from ...storage import Transaction

if TYPE_CHECKING:
    from .letters import Letter


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A message that was refused.

    Attributes:
        code: The code of the error.
        sender: Who sent it; empty if the id is not in the workspace.
        receiver: Who was to receive it; empty if the id is not in the workspace.
    """

    code: str
    sender: str
    receiver: str


Notice: TypeAlias = "Letter | Refusal"
Notify = Callable[[Sequence[Notice]], None]


class NoticingTransaction(Transaction):
    """A transaction that lists what was sent and refused in it, in order.

    Args:
        tx: The transaction.
    """

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self.notices: list[Notice] = []

    def execute(self, sql: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """See `Transaction.execute`."""
        return self._tx.execute(sql, params)

    def hold(self, sql: str, params: Sequence[object] = (), *, alone: bool = False) -> list[tuple[Any, ...]]:
        """See `Transaction.hold`."""
        return self._tx.hold(sql, params, alone=alone)


def note(tx: Transaction, notice: Notice) -> None:
    """Add a notice to a transaction that lists them."""
    if isinstance(tx, NoticingTransaction):
        tx.notices.append(notice)


def emit_notices(emit: Emitter, notices: Sequence[Notice], *, call_id: str = "") -> None:
    """Emit one event for each notice.

    Args:
        emit: Emits the events.
        notices: The notices.
        call_id: The path id of the call that sent the messages; empty if none did.
    """
    for notice in notices:
        if isinstance(notice, Refusal):
            about = {"code": notice.code, "sender": notice.sender, "receiver": notice.receiver}
            emit(MessageRefused, call_id=call_id, **about)
            continue
        message = notice.message
        given = message.to_json()
        emit.keep(message.id, "inputs", {name: given[name] for name in ("content", "payload")})
        introduced = message.payload.get("target_id") if message.message_type == "introduction_response" else None
        emit(
            MessageSent,
            message_id=message.id,
            sender=message.from_id,
            receiver=message.to_id,
            message_type=message.message_type or message.type,
            answers=message.correlation_id,
            introduces=introduced or "",
            chain=notice.chain,
            call_id=call_id,
        )
