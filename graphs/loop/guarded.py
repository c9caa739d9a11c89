"""What a guarded loop does otherwise: results are held, and handles in arguments and answers become values (H11).

The journal has the values, and path ids make the names of results, so a replay gives the same ones. Nothing is stored.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from pydantic import PydanticUserError, TypeAdapter

from ...core import canonical_json
from ...core.errors import OutputInvalid
from ...core.events import ResultHeld
from ...core.marks import sources_in
from ...harness.gate import Gate
from ...harness.gate.labels import ATTACHMENT, CONTEXT, OWN, Label, Steps, joined, origin_of, read_label
from ...harness.handles import (
    HandleInvalid,
    Handles,
    Held,
    Question,
    Resolved,
    as_text,
    has_handles,
    is_handle,
    opens_handle,
    questions_in,
    with_answers,
)
from ...harness.journal import CallRecord
from ...harness.pipeline import Call
from ...harness.revealing import confirm, reveal
from ...memory.attachments import Attachment, Attachments
from ...memory.entries import Entry, Passage
from ...memory.entries.recall import RECALL
from ...signatures import Listener, Thought
from ..attached import texts_in

if TYPE_CHECKING:
    from .tools import Tools


_MARK: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_PLACE: Final = re.compile(r"\.(\d+)\.(\d+):[^/]*$")
_UNFIT: Final = "the values of its handles do not fit what is declared"

Answered = tuple[Any, Mapping[str, Any], list[tuple[Steps, Label]]]
"""An answer, its further outputs, and the labels of their values, with the keys and places that lead to them."""


class Guarded:
    """The results that one guarded loop does not read.

    Args:
        gate: The gate of the loop, which knows what its model has read.

    Attributes:
        handles: By these its model names them.
    """

    def __init__(self, gate: Gate) -> None:
        self.handles = Handles(lambda: Label.of_marks(gate.marks))
        self._files: dict[str, Sequence[Attachment]] = {}  # that no handle has named yet
        self._streamed: _Streamed | None = None

    # --- what is not the result of a call -----------------------------------------------------------------------------

    def outline(self, name: str, what: str, value: Any, marks: Collection[str], label: Label | None = None) -> str:
        """Hold a value that is not the result of a call, and return what the model sees of it.

        Args:
            name: By which the model names it.
            what: What it is, such as `a message`.
            value: The value as JSON.
            marks: The marks of it; see `core.marks`.
            label: Its label, if more is known than its marks.
        """
        known = Label.of_marks(marks)
        self.handles.hold(Held(name, value, label=known if label is None or known.marks - label.marks else label))
        names = [mark for mark in sources_in(marks) if _MARK.fullmatch(mark)]  # a host can have others from a stranger
        who = f"{', '.join(names)} wrote it" if names else "strangers can have written it"
        if not sources_in(marks):
            who = "not everybody may see it"
        return f"({name}: {what} of {len(as_text(value))} characters; not shown, because {who})"

    def files(self, name: str, attachments: Sequence[Attachment]) -> str:
        """Hold attachments, and return what the model sees of them.

        Args:
            name: By which the model names them, as a list of objects with `name`, `type` and `text`.
            attachments: The attachments. Their texts are read once a handle names them.
        """
        self._files.setdefault(name, attachments)
        many = "s" if len(attachments) > 1 else ""
        what = f"{len(attachments)} attachment{many}: [{{name, type, text}}]"
        return f"({name}: {what}; not shown, because strangers can have made them)"

    async def load(self, given: Any, store: Attachments) -> None:
        """Read the attachments that handles in JSON of the model name.

        Args:
            given: The JSON, or a text.
            store: Has their content.
        """
        said = canonical_json(given) if self._files else ""
        for name in [name for name in self._files if name in said]:
            value = await texts_in(self._files.pop(name), store)
            self.handles.hold(Held(name, value, label=Label.of_marks([ATTACHMENT])))

    def entry(self, entry: Entry) -> Entry:
        """A memory entry as the model sees it."""
        if not entry.untrusted:
            return entry
        text = self.outline(f"e_{entry.id[-8:]}", "an entry", entry.text, entry.untrusted)
        return replace(entry, text=text, untrusted=())

    def passage(self, place: int, passage: Passage) -> dict[str, str]:
        """A passage of the host as the model sees it.

        Args:
            place: Its place among them.
            passage: The passage.
        """
        if passage.trusted:
            return {"from": passage.source, "text": passage.text}
        return {"from": CONTEXT, "text": self.outline(f"c{place}", "a passage", passage.text, [CONTEXT])}

    # --- calls ------------------------------------------------------------------------------------------------------

    def with_answers(self, given: Any, answers: Iterable[Resolved]) -> Any:
        """JSON of the model, or a text, with handles of answers in the place of its questions."""
        return with_answers(given, iter([self.handles.keep(each) for each in answers]))

    def told(self, call_id: str, question: Question, found: Resolved) -> dict[str, Any]:
        """The outcome of a call of the tool `ask`: what the model sees, or a held answer."""
        if question.is_shown and not found.label.readers:
            return {"value": found.value}
        name, marks = name_of(call_id), found.label.marks
        self.handles.keep(found, name)
        shown = f"text of {len(found.value)}" if isinstance(found.value, str) else str(question.kind)
        shown = "one of its words" if isinstance(question.kind, list) else shown
        return {
            "value": found.value,
            "outline": f"{name}: {shown}",
            **({"untrusted": sorted(marks)} if marks else {}),
        }

    def outcome(self, call: Call, value: Any, *, again: bool) -> dict[str, Any]:
        """The outcome of a call, with an outline if a stranger can have written its value.

        Args:
            call: The call that was made.
            value: Its result as JSON.
            again: Whether an earlier run of the turn made the call.
        """
        gate, function = call.ctx.gate, call.named
        given = joined(map(read_label, call.labels.values()))
        if function.body is reveal.body:
            gate.mark(*given.marks)
            return {"value": value}
        if function.body is confirm.body:
            return self._told(call, Held(name_of(call.id), value, label=OWN.seen_by(given.readers)), again=again)
        text = value if isinstance(value, str) else canonical_json(value)
        label = gate.result_of(call.id, function, text, call.labels.values())
        if (also := self._also_read(call, value)) != OWN:
            label = label.join(also)
        if not _is_held(call, label):
            return {"value": value}
        fields, schema = gate.fields_of(call.id, function), _schema_of(function.result)
        name = function.name if gate.was_untrusted(call.id, function) else ""
        readers, tell = function.readers, call.ctx.on_error
        held = Held(name_of(call.id), value, schema, label, name, fields, readers, tell)
        return self._told(call, held, again=again)

    def _told(self, call: Call, held: Held, *, again: bool) -> dict[str, Any]:
        """Hold a result, and say so in an event, once."""
        if not again:
            call.ctx.emit(ResultHeld, call_id=call.id, outline=held.outline_without_values)
        return self._held(held)

    def _also_read(self, call: Call, value: Any) -> Label:
        """What a trusted function says that its result was made of: memory entries, or the reply of a member."""
        found = value.get("untrusted", ()) if call.function.name == RECALL and isinstance(value, Mapping) else ()
        record = call.ctx.frame.drive.recorded(call.id)
        marks = {*found, *(() if record is None else record.reply_marks)}
        return Label.of_marks(marks)

    def outcome_of(self, record: CallRecord, call: Mapping[str, Any], outcome: Mapping[str, Any]) -> dict[str, Any]:
        """The outcome of a recorded call whose function is gone. A stranger can have written it."""
        if "value" not in outcome:
            return self.failed(outcome, call, None, record)
        label = Label((origin_of(record.name),), "words")
        return self._held(Held(name_of(record.id), outcome["value"], label=label))

    def _held(self, held: Held) -> dict[str, Any]:
        untrusted = {"untrusted": sorted(held.marks)} if held.marks else {}
        return {"value": held.value, "outline": self.handles.hold(held).outline, **untrusted}

    @staticmethod
    def failed(
        failed: Mapping[str, Any], said: Mapping[str, Any], call: Call | None, record: CallRecord | None
    ) -> dict[str, Any]:
        """A failure as the model reads it. What a function says that read a stranger's text is held back.

        Args:
            failed: Its `code` and `problem`.
            said: The call as the model said it.
            call: The call; None if its function is gone, or it failed before it was made.
            record: Its record; None without a journal.
        """
        if record is not None and record.kind == "model":  # it was not made, and got nothing but its arguments
            strange = has_handles(said["arguments"])
        elif call is None:
            strange = True
        else:
            label = call.ctx.gate.result_of(call.id, call.named, failed["problem"], call.labels.values())
            strange = _is_held(call, label)
        # A function can raise what the gate raises, with a text of its own.
        began = record is not None and (record.recorded_decision or {}).get("decision") in ("approve", "modify")
        if not strange or (record is not None and record.refused and not began):
            return dict(failed)
        return {**failed, "problem": "what it said is held back"}

    # --- answers ----------------------------------------------------------------------------------------------------

    def checked(self, tools: Tools, thought: Thought) -> dict[str, Any]:
        """The answer of a model as it said it, checked with values in the place of handles, or a fault.

        Args:
            tools: Checks it.
            thought: The answer.
        """
        later = [place for place, (_, given) in enumerate(thought.calls) if questions_in(given)]
        try:
            with_values = self._with_values(thought)
            asks = not thought.calls and not isinstance(thought.answer, str) and questions_in(thought.answer)
            if asks or questions_in(dict(thought.outputs)):  # what readers answer is checked when they have
                return {"result": thought.answer, **({"outputs": dict(thought.outputs)} if thought.outputs else {})}
            checked = tools.checked(with_values, later)
        except HandleInvalid as error:
            return {"fault": str(error)}
        if "fault" in checked:  # it can have the values
            handles = any(has_handles(each) for each in (*(given for _, given in thought.calls), thought.answer))
            return {"fault": _UNFIT} if handles or has_handles(thought.outputs) else checked
        if "calls" in checked:
            given = [arguments for _, arguments in thought.calls]
            calls = zip(checked["calls"], given, strict=True)
            return {**checked, "calls": [{**call, "arguments": each} for call, each in calls]}
        said = {**checked, "result": thought.answer} if has_handles(thought.answer) else checked
        return {**said, "outputs": dict(thought.outputs)} if has_handles(thought.outputs) else said

    def _with_values(self, thought: Thought) -> Thought:
        for each in (thought.answer, *thought.outputs.values()):
            if isinstance(each, str):  # it stays as it is until it is rendered
                self.handles.rendered(each)
        calls = tuple((name, self.handles.resolved(given).value) for name, given in thought.calls)
        answer, outputs = (self.handles.resolved(each).value for each in (thought.answer, dict(thought.outputs)))
        return replace(thought, calls=calls, answer=answer, outputs=outputs)

    def answer(self, said: Any) -> tuple[Any, Label]:
        """The answer of the model with values in the place of handles, and its label. Texts are rendered for people."""
        if isinstance(said, str):
            return self.handles.rendered(said)
        resolved = self.handles.resolved(said)
        return resolved.value, resolved.label

    def answered(self, tools: Tools, said: Any, outputs: Mapping[str, Any], head: str) -> Answered:
        """An answer and its outputs with values in the place of handles, checked once more, and the labels of these.

        Args:
            tools: Checks it.
            said: The answer as the model said it: a text, or JSON.
            outputs: Its further outputs as the model said them.
            head: What the answer is called in labels.

        Raises:
            OutputInvalid: The values do not fit what is declared.
        """
        labels = [*self._labels_in(said, (head,))]
        for name, each in outputs.items():
            labels += self._labels_in(each, ("outputs", name))
        outputs = {name: self.answer(each)[0] if isinstance(each, str) else each for name, each in outputs.items()}
        answer, _ = self.answer(said)
        if has_handles(said) or has_handles(outputs):
            thought = Thought(answer=answer, outputs=self.handles.resolved(dict(outputs)).value)
            checked = tools.checked(thought)
            if "fault" in checked:
                raise OutputInvalid(f"the answer is not valid: {_UNFIT}", remedy="try again, or use a larger model")
            answer = checked["result"] if has_handles(said) else answer
            outputs = checked.get("outputs", {}) if has_handles(outputs) else outputs
        return answer, outputs, labels

    def _labels_in(self, said: Any, at: Steps) -> Iterator[tuple[Steps, Label]]:
        """The labels of handles in an answer, each with the keys and places that lead to it."""
        match said:
            case Mapping() if not is_handle(said):
                inside: Iterable[tuple[str | int, Any]] = said.items()
            case list():
                inside = enumerate(said)
            case _:
                yield at, self.answer(said)[1]
                return
        for step, each in inside:  # a text in JSON is never rendered, so nothing in it is a handle
            yield from [((*at, step), OWN)] if isinstance(each, str) else self._labels_in(each, (*at, step))

    def listening(self, listener: Listener) -> Listener:
        """The same listener, whose text stops before the first handle."""
        self._streamed = _Streamed(listener)
        return replace(listener, emit=self._streamed, withdraw=self._streamed.withdraw)

    def finish(self, text: str) -> None:
        """Send what clients of a stream lack of a rendered answer."""
        if self._streamed is not None:
            self._streamed.finish(text)


class _Streamed:
    """Passes the text of an answer on until a handle begins.

    Args:
        listener: Receives it.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener, self._text, self._sent = listener, "", ""

    def __call__(self, text: str) -> None:
        self._text += text
        ready = self._text[len(self._sent) : opens_handle(self._text, len(self._sent))]
        if ready:
            self._sent += ready
            self._listener.emit(ready)

    def withdraw(self) -> None:
        self._text = self._sent = ""
        self._listener.withdraw()

    def finish(self, text: str) -> None:
        if not text.startswith(self._sent):
            self.withdraw()
        if rest := text.removeprefix(self._sent):
            self._listener.emit(rest)


@lru_cache(maxsize=1024)
def _schema_of(result: TypeAdapter[Any]) -> Mapping[str, Any]:
    """The JSON Schema of results with the names that they have in JSON; empty if the type has none."""
    try:
        return result.json_schema(mode="serialization")
    except PydanticUserError:
        return {}


def _is_held(call: Call, label: Label) -> bool:
    """Whether what a call returned or said, with this label, is not for a guarded model to read."""
    function = call.named
    return label != OWN or call.ctx.gate.was_untrusted(call.id, function) or function.readers is not None


def name_of(call_id: str) -> str:
    """By which the model names the result of a call: `r2` for the only or first call of a step, `r2_1` for the next."""
    found = _PLACE.search(call_id)
    assert found is not None, "a loop makes the path ids of its calls"
    return f"r{found[1]}" if found[2] == "0" else f"r{found[1]}_{found[2]}"
