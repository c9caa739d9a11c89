"""Questions that a flow asks a person, as steps of its frame. `journal` decides what happens with the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, PydanticUserError, TypeAdapter

from ..core import Emitter, canonical_json
from ..core.errors import AnswerInvalid, CallRefused, InvalidArgument
from ..core.events import CallDecided
from ..core.pauses import MAX_WAIT_SECONDS
from ..core.validation import is_text, json_of_value, read_value
from .journal import UNATTENDED, Ask, Drive, Frame, Step

_ANSWER = "the answer"


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a person, and the type of the answer.

    Attributes:
        ask: The question as the journal keeps it.
        answer: The type of the answer.
    """

    ask: Ask
    answer: TypeAdapter[Any] = field(repr=False)

    @classmethod
    def of(
        cls, question: object, options: Sequence[str] | None, form: type[BaseModel] | None, seconds: float | None
    ) -> Question:
        """Validate a question and make a `Question` of it.

        Raises:
            InvalidArgument: An argument is not valid; the text names it.
        """
        if not isinstance(question, str) or not is_text(question):
            raise InvalidArgument("`question` must be a text that is not empty", remedy="pass the question to ask")
        if options is not None and (isinstance(options, str) or not options or not all(map(is_text, options))):
            raise InvalidArgument("`options` must be a list of texts", remedy="pass a list of one or more texts")
        if options is not None and form is not None:
            raise InvalidArgument("a question cannot have both `options` and `form`", remedy="pass only one of them")
        if seconds is not None and not _is_time(seconds):
            raise InvalidArgument(
                f"`seconds` must be above 0 and at most ten years, got {seconds!r}",
                remedy="pass a number of seconds, or None to wait for ever",
            )
        try:
            answer: TypeAdapter[Any] = TypeAdapter(str if form is None else form)
            schema = answer.json_schema()
        except PydanticUserError as error:
            problem = type(error).__name__
        else:
            taken = None if options is None else tuple(options)
            return cls(Ask(kind="question", question=question, options=taken, schema=schema, seconds=seconds), answer)
        raise InvalidArgument(f"the form has no JSON Schema ({problem})", remedy="use fields that JSON can hold")


def _is_time(seconds: object) -> bool:
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds <= MAX_WAIT_SECONDS


async def ask_person(frame: Frame, question: Question, key: str | None, *, emit: Emitter, caller: str) -> Any:
    """Ask it as a step of `frame`; see `CallContext.ask_person`."""
    ask = question.ask
    asked = {"question": ask.question, "options": ask.options, "schema": ask.schema}

    async def read(value: Any) -> Any:
        taken = read_value(question.answer, value, what=_ANSWER, error=AnswerInvalid)
        return json_of_value(question.answer, taken, what=_ANSWER, error=AnswerInvalid)

    call_id = await frame.child("ask_person", asked, key)
    step = Step(
        id=call_id,
        parent=frame.path,
        name="ask_person",
        kind="question",
        input=asked,
        body=read,
        ask=ask,
    )
    if frame.drive.refuses(call_id):
        _refuse(step, frame.drive, emit, caller)
    return read_value(question.answer, await frame.do(step), what=_ANSWER, error=AnswerInvalid)


def _refuse(step: Step, drive: Drive, emit: Emitter, caller: str) -> None:
    """Refuse a question of an unattended turn. A replay gets the recorded refusal, and the event is sent once."""
    if drive.recorded(step.id) is None:
        emit(
            CallDecided,
            call_id=step.id,
            function=step.name,
            parent=step.parent,
            decision="refuse",
            gate=UNATTENDED,
        )
    step.refusal = CallRefused(
        "the question is refused: no person watches this unattended turn",
        remedy="continue without the answer, or begin the turn with unattended='pause'",
    )
    step.by = UNATTENDED
    step.gate = canonical_json({"decision": "refuse", "by": UNATTENDED, "caller": caller, "function": step.name})
