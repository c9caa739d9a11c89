"""Asks a person through the client of a call: over the connection while the call is running, or in rounds.

A client before revision 2026-07-28 receives `elicitation/create`. A client of revision 2026-07-28 receives an
`InputRequiredResult`, and repeats the call with the person's answers. The caller of this module uses the answers.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final, Literal, Self

from mcp import types
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field, ValidationError

from ...core import canonical_json
from ...core.errors import AlreadyAnswered, AnswerInvalid, InvalidArgument, StorageInvalid, UnknownPause
from ...core.pauses import Pause, PersonAnswer, Reject, call_id_of
from ...harness.journal import decision_of
from ..service.answers import answer_of, form_of, message_of
from ..service.pauses import takes_answer_of
from ..service.validation import Wire
from .following import ToolCall

How = Literal["connection", "rounds", "not"]

ANSWER_SECONDS: Final = 600.0  # seconds that a person can think while a call is held open
MAX_FORM_TRIES: Final = 3  # how often a form is sent if it comes back invalid
_PREFIX: Final = "wa1."
MAX_STATE_CHARACTERS: Final = 32_768  # characters
MAX_DECLINED: Final = 100  # ids of pauses in one state
_SECRET: Final = ("role", "skill")
"""Arguments that must not be stored in any form, not even as a digest."""

_Id = Annotated[str, Field(min_length=1, max_length=200)]


class Round(Wire):
    """Identifies the turn that asked.

    Attributes:
        turn: The id of the turn.
        thread: Its thread.
        call: A digest of the call, without its role and skill.
        declined: The ids of the pauses that a person declined to answer.
        idle: How many rounds in a row brought no valid answer.
        seq: The number of the last event that was sent to the client by then.
    """

    turn: _Id
    thread: _Id
    call: Annotated[str, Field(max_length=64)]
    declined: list[_Id] = Field(default_factory=list, max_length=MAX_DECLINED)
    idle: Annotated[int, Field(ge=0, le=10)] = 0
    seq: Annotated[int, Field(ge=0, le=2**53)] = 0

    @classmethod
    def read(cls, text: str, call: str) -> Self:
        """Read the state that a client sent back.

        Args:
            text: The `requestState`.
            call: The digest of the call that it came with.

        Raises:
            InvalidArgument: The text is not a valid state, or belongs to another call.
        """
        found: Self | None = None
        if text.startswith(_PREFIX) and len(text) <= MAX_STATE_CHARACTERS:
            with suppress(ValueError, RecursionError):  # errors of base64 and pydantic are of the first type
                data = base64.b64decode(text.removeprefix(_PREFIX).encode(), altchars=b"-_", validate=True)
                found = cls.model_validate(json.loads(data))
        if found is None:
            raise _refused("is not one that this sidecar sent")
        if found.call != call:
            raise _refused("belongs to another call")
        return found

    def text(self) -> str:
        """Return the text that the client must send back."""
        data = json.dumps(self.model_dump(), separators=(",", ":")).encode()
        return _PREFIX + base64.urlsafe_b64encode(data).decode()


def call_digest(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return a digest of a call's tool and arguments, without its role and skill."""
    digested = {name: value for name, value in arguments.items() if name not in _SECRET}
    return hashlib.sha256(canonical_json([tool, digested]).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _refused(why: str) -> InvalidArgument:
    return InvalidArgument(
        f"the requestState {why}",
        remedy="send it back unchanged, with the same tool and arguments; or call the tool `resume` with the answers",
    )


class Asking:
    """Asks a person for answers to the pauses of one call's turns.

    Args:
        call: A call that begins or resumes a turn.

    Attributes:
        round: The state that a client of revision 2026-07-28 sent back; None for a new call. Its turn and thread come
            from the client and must be checked.
        seen: The number of the last event that was sent to the client, in this round and earlier ones.

    Raises:
        InvalidArgument: The `requestState` is not one of ours, belongs to another call, or is missing.
    """

    def __init__(self, call: ToolCall[Any]) -> None:
        self._session, self._request_id, self._account = call.ctx.session, call.ctx.request_id, call.caller.account
        modern = call.ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        self._how = _how(self._session, modern) if call.given.pauses == "elicit" else "not"
        self._digest = call_digest(call.params.name, call.params.arguments or {})
        self._problems: dict[str, str] = {}
        self._cancelled = False
        self._responses: Mapping[str, object] | None = None
        self.round: Round | None = None
        if modern and call.params.request_state is not None:
            self.round = Round.read(call.params.request_state, self._digest)
            self._responses = call.params.input_responses or {}
        elif modern and call.params.input_responses:
            raise InvalidArgument(
                "inputResponses must come with their requestState",
                remedy="send both, with the requestState of the last answer",
            )
        self._declined = [] if self.round is None else list(self.round.declined)
        self._idle, self.seen = (0, 0) if self.round is None else (self.round.idle, self.round.seq)

    async def answers(
        self, turn_id: str, thread: str, pauses: Sequence[Pause], *, own: bool
    ) -> dict[str, PersonAnswer] | types.InputRequiredResult | None:
        """Ask for answers to the pauses of a turn. If the turn pauses again, call this again on the same `Asking`.

        Args:
            turn_id: The id of the turn.
            thread: Its thread.
            pauses: The pauses that the caller can possibly answer. For another account's turn these are not all.
            own: Whether the turn is the caller's. The owner can repeat an accepted answer, since a result can get lost.

        Returns:
            Answers to resume with, never empty; or a result for the client, which then asks and repeats the call; or
            None if there is nothing more to ask, so that the paused turn is the answer of the call.

        Raises:
            UnknownPause, AlreadyAnswered: The client answered a pause that is not open.
        """
        responses, self._responses = self._responses, None
        if responses is not None:
            found = self._responded(turn_id, pauses, responses, own=own)
            if found:
                return found
        askable = self._askable(pauses)
        if not askable or self._idle >= MAX_FORM_TRIES:
            return None
        if self._how == "rounds":
            return self._round_of(turn_id, thread, askable)
        return await self._ask_all(askable) or None

    def _askable(self, pauses: Sequence[Pause]) -> list[Pause]:
        if self._cancelled or self._how == "not":
            return []
        return [pause for pause in pauses if pause.id not in self._declined and takes_answer_of(self._account, pause)]

    # --- over the connection ----------------------------------------------------------------------------------------

    async def _ask_all(self, pauses: Sequence[Pause]) -> dict[str, PersonAnswer]:
        """Ask for one pause after another, until the person cancels or the client has disconnected."""
        found: dict[str, PersonAnswer] = {}
        for pause in pauses:
            for _ in range(MAX_FORM_TRIES):
                result = await self._elicit(pause)
                answer = self._read(pause, result)
                if answer is not None:
                    found[pause.id] = answer
                if self._cancelled:
                    return found
                if answer is not None or pause.id in self._declined:
                    break
            else:
                self._declined.append(pause.id)
        return found

    async def _elicit(self, pause: Pause) -> types.ElicitResult | None:
        """Return the client's response; None if it is unreadable or the client has disconnected."""
        try:
            return await self._session.send_request(
                form_request(pause, self._problems.get(pause.id, "")),
                types.ElicitResult,
                request_read_timeout_seconds=ANSWER_SECONDS,
                metadata=ServerMessageMetadata(related_request_id=self._request_id),
            )
        except ValidationError:
            return None
        except (MCPError, TimeoutError):  # the client cannot ask after all, took too long, or has disconnected
            self._cancelled = True
            return None

    # --- in rounds --------------------------------------------------------------------------------------------------

    def _round_of(self, turn_id: str, thread: str, pauses: Sequence[Pause]) -> types.InputRequiredResult:
        state = Round(
            turn=turn_id,
            thread=thread,
            call=self._digest,
            declined=self._declined[-MAX_DECLINED:],
            idle=self._idle,
            seq=self.seen,
        )
        return types.InputRequiredResult(
            input_requests={pause.id: form_request(pause, self._problems.get(pause.id, "")) for pause in pauses},
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
                again = True  # the client repeats a call whose answer was lost
            elif takes_answer_of(self._account, pause):
                answer = self._read(pause, response)
                if answer is not None:
                    found[pause_id] = answer
        if not again:
            self._idle = 0 if found else self._idle + 1
        return found

    # --- both -------------------------------------------------------------------------------------------------------

    def _read(self, pause: Pause, response: object) -> PersonAnswer | None:
        """Return the answer in a response. If it has none, return None and record why."""
        self._problems.pop(pause.id, None)
        if not isinstance(response, types.ElicitResult):
            self._problems[pause.id] = "it was not an answer to a form"
            return None
        try:
            answer = read_response(pause, response, self._account)
        except (AnswerInvalid, StorageInvalid) as error:
            self._problems[pause.id] = error.problem
            return None
        if answer is None and response.action == "cancel":
            self._cancelled = True
        elif answer is None:
            self._declined.append(pause.id)
        return answer


def read_response(pause: Pause, response: types.ElicitResult, account: str | None) -> PersonAnswer | None:
    """Return the answer in a response to the form of a pause; None if the person gave none.

    Args:
        pause: The pause.
        response: The response. Declining an approval rejects the call.
        account: The account that answers.

    Raises:
        AnswerInvalid, StorageInvalid: The answer is not accepted. The text names the field and has no value.
    """
    if response.action == "accept":
        answer = answer_of(pause, response.content or {})
        decision_of(pause, answer, account)
        return answer
    return Reject("") if response.action == "decline" and pause.kind == "approval" else None


def _how(session: ServerSession, modern: bool) -> How:
    if not takes_forms(session.client_capabilities):
        return "not"
    if modern:
        return "rounds"
    return "connection" if session.can_send_request else "not"


def takes_forms(capabilities: types.ClientCapabilities | None) -> bool:
    """Whether a client shows forms. A client that declares no modes supports forms."""
    asked = None if capabilities is None else capabilities.elicitation
    return asked is not None and (asked.form is not None or asked.url is None)


def form_request(pause: Pause, problem: str = "") -> types.ElicitRequest:
    """Return the request that shows a person the form of a pause."""
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=message_of(pause, problem), requested_schema=form_of(pause))
    )


def _not_open(pause_id: str, turn_id: str) -> UnknownPause | AlreadyAnswered:
    if call_id_of(pause_id).startswith(f"{turn_id}/"):
        return AlreadyAnswered(
            "the pause is already answered, or the turn no longer waits for it",
            remedy="call the tool `pauses` to see what is open",
        )
    return UnknownPause("there is no such pause", remedy="call the tool `pauses` to see what is open")
