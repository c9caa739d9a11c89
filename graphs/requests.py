"""The limits of a turn, the request to an engine, the values of one run, and the outcome: values only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from threading import Event
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter

from ..core import ROOT, Emitter, ModelUsage, Scope, Tier
from ..core.events import Deltas, TurnKind
from ..core.pauses import Pause, UnattendedMode
from ..harness import CONVERSATION
from ..harness.gate import CODE, Caller
from ..harness.inside import Origin
from ..harness.limits import Use
from ..memory import thread_key
from ..memory.attachments import AttachmentSource
from ..role_resolution import ResolvedRole
from ..storage import Lease, Transaction
from .shape import SUBAGENT, Work
from .speaking import Speaker

if TYPE_CHECKING:
    from .nesting import NodeView


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOptions:
    """The limits of a turn.

    Attributes:
        max_rounds: How many steps can end in calls before the model must answer.
        history_limit: How many messages of the log the model sees.
        history_characters: How many characters of them; None is unlimited.
        summaries: Whether a summary replaces messages over these limits; otherwise they are left out.
        results_stay: Whether results of tasks stay word for word in addition to a summary.
        kept_stay: The same for messages that a person marked as kept.
        summary_part: The length of a summary as a part of the text that it replaces; None derives it from what the
            model sees.
        verifications: How often a rejected answer can be given again; 0 turns the check off.
        attachment_fallback: Whether a message with an attachment that the model does not accept is refused, or the
            model gets only its name.
        find_tools_above: With more tools than this, the model is offered a search; None offers it all of them.
        reader: The model that reads for guarded models; None is the turn's.
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
    find_tools_above: int | None = 100
    reader: str | None = None


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """The request of a surface.

    Attributes:
        kind: The surface.
        scope: The ids that the turn runs under.
        body: The body of the turn's first message in the log. Its `untrusted` are marks that the turn begins with, and
            its `guard` is true if the turn is guarded.
        work: The checked task of a task or skill turn.
        prompt: What the caller passes again to resume: a skill's prompt, for the entry Signature of the task, or a
            message's context as JSON.
        attached: The attachments to add to the message. They are read when the turn owns its thread.
        model: The names of the turn's own model and its fallbacks; empty uses the agent's.
        origin: The call whose code begins or resumes the turn, if any.
        unattended: What happens in place of asking a person; None asks.
        output: Reads the answer if `body` has a schema for it; None uses only the schema.
        example: Whether the model steps of the turn are kept as examples.
        tiers: The tiers whose stored roles it has; None is all of them.
        on_behalf_of: The member that the turn runs for; `root` if it is a turn of no member.
        sender: The member whose message begins the turn; None if no member's message does.
        filled: The names of the inputs whose value was made for this turn, because the caller left them out. A repeated
            start is recognised without them.
        view: What the turn gets of the node whose graph shows it as a subgraph. It is not stored.
        reports: Whom it reports to if it is work in the background, and what is left of its chain's limits; see
            `memory.reports.ReportTo`.
        speaker: The member that speaks in it, if the person's conversation was handed to one; its id is then
            `on_behalf_of`. It is read from `body` again as the turn resumes.
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
    example: bool = False
    tiers: tuple[Tier, ...] | None = None
    on_behalf_of: str = ROOT
    sender: str | None = None
    filled: frozenset[str] = frozenset()
    view: NodeView | None = field(default=None, repr=False, compare=False)
    reports: Mapping[str, Any] | None = None
    speaker: Speaker | None = None

    @property
    def author(self) -> str:
        """The author of the request."""
        return self.sender or self.scope.account or "user"

    @property
    def guard(self) -> bool:
        """Whether no model of the turn that calls tools reads what a stranger can have written."""
        return self.body.get("guard") is True

    @property
    def thread_key(self) -> str:
        """The id of the checkpointed thread."""
        return thread_key(self.scope)

    @property
    def caller(self) -> Caller:
        """The caller of its tasks: the member that it runs for, the conversation, the host's code, or a call.

        A model has influenced the conversation, members, and what the messages of members ask for. The policy and the
        ceiling of a member's worker narrow all calls of its turns. If a task runs that worker, it adds itself.
        """
        origin, member = self.origin, self.on_behalf_of
        workers = () if origin is None else origin.workers
        if member != ROOT:
            own = () if member in workers or self._runs(member) else (member,)
            instead = replace(self, on_behalf_of=ROOT).caller.name if self.handed else ""
            return Caller(member, model_influenced=True, workers=(*workers, *own), instead_of=instead)
        if self.kind not in ("task", "skill"):
            return Caller(CONVERSATION, model_influenced=True, workers=workers)
        if origin is not None and origin.model_influenced:
            return Caller(origin.caller, model_influenced=True, workers=workers)
        return replace(CODE, model_influenced=True) if self.body.get("untrusted") else CODE

    @property
    def handed(self) -> bool:
        """Whether the member that it runs for speaks for a person, in it or where it was begun."""
        return self.speaker is not None or (self.origin is not None and self.origin.handed)

    def _runs(self, worker: str) -> bool:
        """Whether its task is a run of this worker."""
        work = self.work
        return work is not None and work["shape"] == SUBAGENT and work["params"].get("worker") == worker


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRun:
    """The values of one run of a turn.

    Attributes:
        turn_id: The turn's id.
        role: The turn's resolved role.
        emit: Receives events.
        lease: The ownership of the thread; None if nothing is stored.
        stream: What a client wants in parts.
        role_key: The id of the key for the digest of the turn's role; empty is the current key.
        refreshed: Whether the turn can resume under another role than it began with.
        use: Counts what it uses against limits, and stores that; None has no limits and stores nothing.
        unread: Is set once it is known that the inbox of the thread had unread messages as the turn began.
    """

    turn_id: str
    role: ResolvedRole = field(repr=False)
    emit: Emitter
    lease: Lease | None
    stream: Deltas = "none"
    role_key: str = ""
    refreshed: bool = False
    use: Use | None
    unread: Event = field(default_factory=Event)

    def note(self, transaction: Transaction) -> None:
        """Write what the run notes about itself next to its calls; this class notes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    """The outcome of a turn.

    Attributes:
        status: `done`, `paused` if a person is asked, `stopped` if it was stopped and can be resumed later.
        text: The answer; empty for a task.
        result: A task's result; the answer as JSON if the message has a schema for it.
        outputs: The further outputs of the answer, as JSON.
        labels: Where what strangers can have written of a guarded turn's answer comes from, by dotted paths.
        usage: The usage of its model calls, by the model's name.
        pauses: The questions for a person.
        recalled: The ids of the memory entries that it recalled.
        roleless: The answer without anything of the turn's roles, for a member's memory and for reports; None if it is
            not known.
        withheld: How many characters of a role were withheld of each output field in this run.
        marks: The marks of the answer of a turn in the background.
    """

    status: Literal["done", "paused", "stopped"] = "done"
    text: str = ""
    result: Any = None
    outputs: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, ModelUsage] = field(default_factory=dict)
    pauses: tuple[Pause, ...] = ()
    recalled: tuple[str, ...] = ()
    roleless: str | None = None
    withheld: Mapping[str, int] = field(default_factory=dict)
    marks: Collection[str] = ()
