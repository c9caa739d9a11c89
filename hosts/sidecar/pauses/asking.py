"""Asking a person through the client of a call: over the connection while the call is under way, or in rounds.

A client of an earlier revision is sent `elicitation/create`. One of the revision 2026-07-28 gets an
`InputRequiredResult` and calls again with what the person said. What is done with the answers is the caller's matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.types import (
    CallToolRequestParams,
    ClientCapabilities,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    RequestId,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ....core.errors import AlreadyAnswered, AnswerInvalid, InvalidArgument, StorageInvalid, UnknownPause
from ....core.pauses import Pause, PersonAnswer, Reject, call_id_of, may_answer
from ....harness.journal import decision_of
from ...pauses import is_late
from .forms import answer_of, form_of, message_of
from .rounds import Round, call_of, declined

How = Literal["connection", "rounds", "not"]

_PATIENCE: Final = 600.0  # seconds that a person may think while a call is held open
_TRIES: Final = 3  # of a form that comes back and does not fit


@dataclass(slots=True, eq=False)
class Asking:
    """Asks a person what the turns of one call wait for; make it with `of`.

    Attributes:
        round: What a client of the revision 2026-07-28 sent back; None where the call is a new one. The turn and the
            thread in it are the client's word and have to be checked.
        seen: The last event that the client has been sent, in this round and in those before.
    """

    _session: ServerSession
    _request_id: RequestId | None
    _how: How
    _account: str | None
    _call: str
    _seconds: float
    round: Round | None = None
    seen: int = 0
    _responses: Mapping[str, object] | None = None
    _declined: list[str] = field(default_factory=list)
    _problems: dict[str, str] = field(default_factory=dict)
    _stopped: bool = False
    _idle: int = 0

    @classmethod
    def of(
        cls,
        ctx: ServerRequestContext[Any, Any],
        params: CallToolRequestParams,
        *,
        account: str | None,
        wanted: bool = True,
        seconds: float | None = None,
    ) -> Self:
        """What can be asked through the client of a call.

        Args:
            ctx: The request.
            params: What it says.
            account: On whose behalf it is made.
            wanted: Whether the caller wants to be asked.
            seconds: How long a person may think while the call is held open; None is ten minutes.

        Raises:
            InvalidArgument: The `requestState` is not one of ours, is of another call, or is missing.
        """
        modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        how = _how(ctx.session, modern) if wanted else "not"
        call = call_of(params.name, params.arguments or {})
        made = cls(ctx.session, ctx.request_id, how, account, call, _PATIENCE if seconds is None else seconds)
        if modern and params.request_state is not None:
            made.round = Round.read(params.request_state, made._call)
            made._responses = params.input_responses or {}
            made._declined, made._idle, made.seen = list(made.round.declined), made.round.idle, made.round.seq
        elif modern and params.input_responses:
            raise InvalidArgument(
                "inputResponses came without the requestState that belongs to them",
                remedy="send both, as the last answer gave them",
            )
        return made

    async def answers(
        self, turn_id: str, thread: str, pauses: Sequence[Pause], *, own: bool
    ) -> dict[str, PersonAnswer] | InputRequiredResult | None:
        """Ask what a paused turn waits for. Of a turn that pauses again ask again, with the same `Asking`.

        Args:
            turn_id: The turn.
            thread: Its thread.
            pauses: What it waits for that may be the caller's to answer; of others' turns that is not all.
            own: Whether the turn is the caller's. They may say again what was taken, since an answer can be lost.

        Returns:
            Answers to go on with, never none; or what the client is to be given, so that it asks and calls again; or
            None, where nothing more can be asked and the paused turn is the call's answer.

        Raises:
            UnknownPause, AlreadyAnswered: The client answered something that is not open.
        """
        responses, self._responses = self._responses, None
        if responses is not None:
            found = self._responded(turn_id, pauses, responses, own=own)
            if found:
                return found
        askable = self._askable(pauses)
        if not askable or self._idle >= _TRIES:
            return None
        if self._how == "rounds":
            return self._round_of(turn_id, thread, askable)
        return await self._ask_all(askable) or None

    def _askable(self, pauses: Sequence[Pause]) -> list[Pause]:
        if self._stopped or self._how == "not":
            return []
        return [pause for pause in pauses if pause.id not in self._declined and self._theirs(pause)]

    def _theirs(self, pause: Pause) -> bool:
        """Whether it takes the answer of the caller's account."""
        return not is_late(pause) and may_answer(self._account, pause.approvers)

    # --- over the connection ----------------------------------------------------------------------------------------

    async def _ask_all(self, pauses: Sequence[Pause]) -> dict[str, PersonAnswer]:
        """Ask one after another, until the person does not want any more or the client is gone."""
        found: dict[str, PersonAnswer] = {}
        for pause in pauses:
            for _ in range(_TRIES):
                result = await self._elicit(pause)
                answer = self._read(pause, result)
                if answer is not None:
                    found[pause.id] = answer
                if self._stopped:
                    return found
                if answer is not None or pause.id in self._declined:
                    break
            else:
                self._declined.append(pause.id)
        return found

    async def _elicit(self, pause: Pause) -> ElicitResult | None:
        """What the client says; None where it is nothing that can be read, or it is gone."""
        try:
            return await self._session.send_request(
                _request(pause, self._problems.get(pause.id, "")),
                ElicitResult,
                request_read_timeout_seconds=self._seconds,
                metadata=ServerMessageMetadata(related_request_id=self._request_id),
            )
        except ValidationError:
            return None
        except (MCPError, TimeoutError):  # it cannot after all, took too long, or is gone
            self._stopped = True
            return None

    # --- in rounds --------------------------------------------------------------------------------------------------

    def _round_of(self, turn_id: str, thread: str, pauses: Sequence[Pause]) -> InputRequiredResult:
        state = Round(
            turn=turn_id,
            thread=thread,
            call=self._call,
            declined=declined(self._declined),
            idle=self._idle,
            seq=self.seen,
        )
        return InputRequiredResult(
            input_requests={pause.id: _request(pause, self._problems.get(pause.id, "")) for pause in pauses},
            request_state=state.text(),
        )

    def _responded(
        self, turn_id: str, pauses: Sequence[Pause], responses: Mapping[str, object], *, own: bool
    ) -> dict[str, PersonAnswer]:
        known = {pause.id: pause for pause in pauses}
        found: dict[str, PersonAnswer] = {}
        again = False
        for pause_id, response in responses.items():
            pause = known.get(pause_id)
            if pause is None:
                if not (own and call_id_of(pause_id).startswith(f"{turn_id}/")):
                    raise _not_open(pause_id, turn_id)
                again = True  # a call whose answer was lost is made once more
            elif self._theirs(pause):
                answer = self._read(pause, response)
                if answer is not None:
                    found[pause_id] = answer
        if not again:
            self._idle = 0 if found else self._idle + 1
        return found

    # --- both -------------------------------------------------------------------------------------------------------

    def _read(self, pause: Pause, response: object) -> PersonAnswer | None:
        """The answer in a response. None where there is none, and then it is noted why."""
        self._problems.pop(pause.id, None)
        if not isinstance(response, ElicitResult):
            self._problems[pause.id] = "it was no answer to a form"
            return None
        match response.action:
            case "accept":
                try:
                    answer = answer_of(pause, response.content or {})
                    decision_of(pause, answer, self._account)
                except (AnswerInvalid, StorageInvalid) as error:
                    self._problems[pause.id] = error.problem
                    return None
                return answer
            case "decline" if pause.kind == "approval":
                return Reject("")
            case "decline":
                self._declined.append(pause.id)
            case "cancel":
                self._stopped = True
        return None


def _how(session: ServerSession, modern: bool) -> How:
    if not _takes_forms(session.client_capabilities):
        return "not"
    if modern:
        return "rounds"
    return "connection" if session.can_send_request else "not"


def _takes_forms(capabilities: ClientCapabilities | None) -> bool:
    """Whether a client shows forms; one that says nothing of modes means them."""
    asked = None if capabilities is None else capabilities.elicitation
    return asked is not None and (asked.form is not None or asked.url is None)


def _request(pause: Pause, problem: str) -> ElicitRequest:
    return ElicitRequest(
        params=ElicitRequestFormParams(message=message_of(pause, problem), requested_schema=form_of(pause))
    )


def _not_open(pause_id: str, turn_id: str) -> UnknownPause | AlreadyAnswered:
    if call_id_of(pause_id).startswith(f"{turn_id}/"):
        return AlreadyAnswered(
            "what was asked is answered already, or nobody waits for it any more",
            remedy="call the tool `pauses` to see what is open",
        )
    return UnknownPause("there is no such pause", remedy="call the tool `pauses` to see what is open")


__all__ = ["Asking"]
