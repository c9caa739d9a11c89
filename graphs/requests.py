"""The bounds of a turn, what is asked of an engine, what one run brings along, and what comes out: values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter

from ..core import Emitter, ModelUsage, Scope
from ..core.events import TurnKind
from ..core.pauses import Pause, UnattendedMode
from ..harness import CONVERSATION
from ..harness.gate import CODE, Caller
from ..harness.inside import Origin
from ..harness.limits import Use
from ..memory import thread_key
from ..memory.attachments import AttachmentSource
from ..role_resolution import ResolvedRole
from ..storage import Lease
from .shape import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOptions:
    """Bounds of a turn.

    Attributes:
        max_rounds: How many steps may end in calls before the model must answer.
        history_limit: How many messages of the log the model sees.
        history_characters: How many characters of them; None is any number.
        summaries: Whether a summary comes in the place of what is over these bounds; else it is left out.
        results_stay: Whether results of tasks stay word for word beside a summary.
        kept_stay: Whether messages that a person marked as kept do.
        summary_part: How long a summary may be, as a part of what it stands for; None goes by what the model sees.
        verifications: How often an answer may be found wanting, and given anew; 0 checks none.
        attachment_fallback: Whether a message with an attachment that the model does not take is refused, or the model
            gets its name alone.
    """

    max_rounds: int = 8
    history_limit: int = 200
    history_characters: int | None = None
    summaries: bool = True
    results_stay: bool = True
    kept_stay: bool = True
    summary_part: float | None = None
    verifications: int = 0
    attachment_fallback: Literal["fail", "note"] = "fail"


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """What a surface asks for.

    Attributes:
        kind: Which surface.
        scope: The ids that the turn runs under.
        body: What goes into the log as the turn's first message.
        work: The checked task of a task or skill turn.
        prompt: A skill's prompt, for the entry Signature of the task.
        attached: What is to be attached to the message; it is read once the turn owns its thread.
        model: The names of the turn's own model and of those tried after it; empty is the agent's.
        origin: The call that the turn is begun or resumed from, if code that a call runs does that.
        unattended: What happens where a person would be asked; None asks them.
        output: Reads the answer where `body` has the schema of one; None goes by the schema alone.
    """

    kind: TurnKind
    scope: Scope
    body: Mapping[str, Any]
    work: Work | None = None
    prompt: str | None = field(default=None, repr=False)
    attached: tuple[AttachmentSource, ...] = field(default=(), repr=False)
    model: tuple[str, ...] = ()
    origin: Origin | None = None
    unattended: UnattendedMode | None = None
    output: TypeAdapter[Any] | None = None

    @property
    def author(self) -> str:
        """Who asks."""
        return self.scope.account or "user"

    @property
    def thread_key(self) -> str:
        """The id of the checkpointed thread."""
        return thread_key(self.scope)

    @property
    def caller(self) -> Caller:
        """Who dispatches its tasks: the conversation, the host's own code, or a call that a model had a say in."""
        workers = () if self.origin is None else self.origin.workers
        if self.kind not in ("task", "skill"):
            return Caller(CONVERSATION, modelled=True, workers=workers)
        if self.origin is None or not self.origin.modelled:
            return CODE
        return Caller(self.origin.caller, modelled=True, workers=workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRun:
    """What one run at a turn brings along.

    Attributes:
        turn_id: The turn's id.
        role: The turn's resolved role.
        emit: Where events go.
        lease: The ownership of the thread; None where nothing is stored.
        stream: Whether anybody wants deltas.
        role_key: The id of the key that the turn's role was noted with; empty is the present one.
        refreshed: Whether the turn may resume under another role than it began with.
        use: What it may use, and where that is written down; None is anything, and nowhere.
    """

    turn_id: str
    role: ResolvedRole = field(repr=False)
    emit: Emitter
    lease: Lease | None = None
    stream: bool = False
    role_key: str = ""
    refreshed: bool = False
    use: Use | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    """What a turn gave.

    Attributes:
        status: `done`, `paused` where a person is asked, `stopped` where it was to stop and can go on later.
        text: The answer; empty for a task.
        result: A task's result; of a message whose answer has a schema, the answer as JSON.
        usage: What its model calls used, by the model's name.
        pauses: What is asked.
    """

    status: Literal["done", "paused", "stopped"] = "done"
    text: str = ""
    result: Any = None
    usage: Mapping[str, ModelUsage] = field(default_factory=dict)
    pauses: tuple[Pause, ...] = ()


__all__ = ["GraphOptions", "TurnOutcome", "TurnRequest", "TurnRun"]
