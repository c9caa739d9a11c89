"""Stubs for a model's service and for storage, so that only the product's own work is measured."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import cache

import dspy
from dspy.lm15 import Message as LmMessage
from dspy.lm15 import Request, Response, StreamDeltaEvent, StreamEndEvent, StreamStartEvent, TextDelta, Usage

from worldagent.core import Emitter, Scope, SystemClock, Tier
from worldagent.core.events import TurnEvent
from worldagent.graphs import TurnEngine, TurnOutcome, TurnRequest, TurnRun
from worldagent.graphs.context import Services
from worldagent.harness import Registry, Worker
from worldagent.memory import ConversationLog, Draft, Message, Tail
from worldagent.memory.attachments import LIMIT, Attachments
from worldagent.role_resolution import NO_ROLE, ResolvedRole, Role, RoleResolver
from worldagent.signatures import open_model
from worldagent.signatures.models import Models
from worldagent.storage import Lease

QUESTION = "Who rules Vell, and since when? Give the name, the year and the source. " * 3
ANSWER = "Queen Ada rules Vell since the year 812, as the chronicle of the second tower says in its last chapter."
ROLE_TEXT = "You judge harshly. You name what is missing before what is there, in short and plain sentences. " * 4
CRITIC = Worker("critic", "You weigh a claim and say what speaks against it.", "judges claims")

_PLAN = (
    '[{"tool": "critic", "arguments": {"request": "Judge the claim that Queen Ada rules Vell since the year 812."}}]'
)
_USAGE = Usage(input_tokens=300, output_tokens=30, total_tokens=330)
_CLOCK = SystemClock()


def answering(request: Request) -> str:
    """Return the completion of a conversation that always answers."""
    return f"[[ ## reply ## ]]\n{ANSWER}\n\n[[ ## completed ## ]]"


def delegating(request: Request) -> str:
    """Return a completion of one delegation: the conversation calls, the worker answers, the conversation answers."""
    if CRITIC.instructions in str(request.system):
        return "[[ ## result ## ]]\nNo source before the fire names her.\n\n[[ ## completed ## ]]"
    dispatches, reply = ("[]", ANSWER) if len(request.messages) > 1 else (_PLAN, "I will ask critic.")
    return f"[[ ## reply ## ]]\n{reply}\n\n[[ ## calls ## ]]\n{dispatches}\n\n[[ ## completed ## ]]"


def constant_lm(reply: Callable[[Request], str], *, delay: float = 0.0, pace: float = 0.0) -> dspy.LM:
    """A real `dspy.LM` whose service answers with ready-made objects.

    Args:
        reply: Returns the completion of a request.
        delay: Seconds until the answer, or until its first piece.
        pace: Seconds between two pieces of a streamed answer.
    """
    engine = _Async(reply, delay, pace)
    return dspy.LM("constant", engine=_Sync(reply), async_engine=engine, cache=False, num_retries=0)


class MemoryLog(ConversationLog):
    """A log that keeps messages in a dict and checks nothing."""

    def __init__(self) -> None:
        self._kept: dict[str, Message] = {}
        self._ids = itertools.count()

    async def append(
        self,
        parent: str | None,
        messages: Sequence[Draft],
        *,
        thread: str,
        turn_id: str,
        lease: Lease | None = None,
    ) -> str:
        for draft in messages:
            depth = 0 if parent is None else self._kept[parent].depth + 1
            made = Message(
                id=f"m{next(self._ids)}",
                parent=parent,
                depth=depth,
                turn_id=turn_id,
                author=draft.author,
                kind=draft.kind,
                body=draft.body,
                at=_CLOCK.now(),
            )
            self._kept[made.id] = made
            parent = made.id
        assert parent is not None
        return parent

    async def history(self, head: str | None, *, before: str | None = None, limit: int = 50) -> tuple[Message, ...]:
        found: list[Message] = []
        while head is not None and len(found) < limit:
            found.append(self._kept[head])
            head = found[-1].parent
        return tuple(reversed(found))

    async def tail(self, head: str, *, limit: int, lease: Lease | None = None) -> Tail:
        return Tail(await self.history(head, limit=limit), None)

    async def some(self, head: str, ids: Sequence[str]) -> tuple[Message, ...]:
        return tuple(self._kept[message_id] for message_id in ids if message_id in self._kept)


class BareTurns:
    """Turns without checkpoints, storage, lease or role sources: only the turn graph and the model call."""

    def __init__(self, engine: TurnEngine) -> None:
        self.engine = engine
        self._numbers = itertools.count()

    @classmethod
    async def open(
        cls,
        lm: dspy.LM | str,
        *,
        api_base: str | None = None,
        workers: Sequence[Worker] = (),
        registry: Registry | None = None,
    ) -> BareTurns:
        caller = await open_model(lm, api_base=api_base)
        services = Services(
            caller=caller,
            models=Models(caller),
            registry=registry if registry is not None else Registry((), workers),
            resolver=RoleResolver(_NoStore(), {}),
            log=MemoryLog(),
            attachments=_NoAttachments(),
        )
        engine = TurnEngine(None, services, shapes=())
        return cls(engine)

    async def run(self, role: ResolvedRole = NO_ROLE, *, stream: bool = False, text: str = QUESTION) -> TurnOutcome:
        """Run one conversation turn, in which a person says `text`, on its own thread."""
        number = next(self._numbers)
        events: list[TurnEvent] = []
        request = TurnRequest("message", Scope(workspace="bench", thread=str(number)), {"text": text})
        emit = Emitter(f"turn_{number}", _CLOCK, events.append)
        run = TurnRun(
            turn_id=emit.turn_id, role=role, emit=emit, lease=None, use=None, stream="answer" if stream else "none"
        )
        asked = await self.engine.begin(request, turn_id=run.turn_id)
        return await self.engine.run(request, run, asked=asked)


class _NoAttachments(Attachments):
    def __init__(self) -> None:
        self.limit = LIMIT


class _NoStore:
    """A `RoleStore` without tiers."""

    tiers: frozenset[Tier] = frozenset()

    async def list(self, scope_ids: Mapping[Tier, str]) -> dict[Tier, Role]:
        return {}

    async def get(self, tier: Tier, scope_id: str) -> Role | None:
        raise AssertionError("a turn only lists roles")

    async def put(self, tier: Tier, scope_id: str, role: Role) -> None:
        raise AssertionError("a turn only lists roles")

    async def delete(self, tier: Tier, scope_id: str) -> bool:
        raise AssertionError("a turn only lists roles")


@cache
def _response(text: str) -> Response:
    return Response(id=None, model="constant", message=LmMessage.assistant(text), finish_reason="stop", usage=_USAGE)


@cache
def _pieces(text: str) -> tuple[StreamDeltaEvent, ...]:
    return tuple(StreamDeltaEvent(TextDelta(text=word)) for word in text.replace(" ", " \0").split("\0"))


class _Sync:
    def __init__(self, reply: Callable[[Request], str]) -> None:
        self._reply = reply

    def complete(self, request: Request) -> Response:
        return _response(self._reply(request))

    def close(self) -> None:
        """Do nothing: this has no connection."""


class _Async:
    def __init__(self, reply: Callable[[Request], str], delay: float, pace: float) -> None:
        self._reply, self._delay, self._pace = reply, delay, pace

    async def complete(self, request: Request) -> Response:
        if self._delay:
            await asyncio.sleep(self._delay)
        return _response(self._reply(request))

    async def stream(
        self, request: Request
    ) -> AsyncGenerator[StreamStartEvent | StreamDeltaEvent | StreamEndEvent, None]:
        if self._delay:
            await asyncio.sleep(self._delay)
        yield StreamStartEvent(id=None, model="constant")
        for piece in _pieces(self._reply(request)):
            if self._pace:
                await asyncio.sleep(self._pace)
            yield piece
        yield StreamEndEvent(finish_reason="stop", usage=_USAGE)

    async def aclose(self) -> None:
        """Do nothing: this has no connection."""
