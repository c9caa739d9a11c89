"""The command `resume`: goes on with a turn that waits for a person, was stopped, failed or was cut off."""

from __future__ import annotations

import re
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...agent.threads import ThreadState
from ...core.errors import AlreadyAnswered, AnswerInvalid, InvalidArgument, NothingToResume, UnknownPause
from ...core.pauses import Approve, Pause, PersonAnswer, Reject, call_id_of
from ..pauses import is_late, unanswered
from ._pauses import read_answer
from ._thread_options import ResumeOptions
from .answers import GoingOn, checked_role, go_on, no_thread, output_of
from .output import Output
from .session import open_agent, run
from .threads import open_threads
from .turn import resume_command, tell

if TYPE_CHECKING:
    from ...agent import WorldAgent
    from ...role_resolution import Role

# Ids of pauses begin with the turn's, so an answer never looks like one by chance.
_LIKE_AN_ID: Final = re.compile(r"turn_[0-9a-f]{32}(/|-2F)")


def resume(options: ResumeOptions) -> int:
    """Run the command and return its exit code."""
    output = output_of(options)

    def begin() -> Coroutine[Any, Any, int]:
        call_role = checked_role(options, "resume", None)
        return _resume(open_agent(options, output), options, output, call_role)

    return run(output, begin)


async def _resume(agent: WorldAgent, options: ResumeOptions, output: Output, call_role: Role | None) -> int:
    from ...agent import Turn

    scope = agent.thread(options.thread).scope
    # Read before the agent opens, so that what waits is told without a model.
    async with open_threads(agent.storage) as threads:
        found = None if threads is None else await threads.register.find(scope)
        pauses = () if threads is None else unanswered(await threads.register.pauses(scope))
        gone = frozenset[str]() if threads is None else await threads.register.answered(scope)
    state = _resumable(found, options, agent)
    answers = dict(_answers(options, _Asked(options.thread, pauses, gone)))
    if not answers and _only_waits(state, pauses):
        waiting = Turn(id=state.turn_id, thread=options.thread, status="paused", pauses=pauses)
        return tell(waiting, output, resume_command(options, options.thread), options)
    return await go_on(agent, options, output, GoingOn(options.thread, answers, call_role))


def _resumable(state: ThreadState | None, options: ResumeOptions, agent: WorldAgent) -> ThreadState:
    if state is None:
        raise no_thread(agent.workspace, options.thread)
    if not state.resumable and state.status != "running":
        raise NothingToResume(
            f"the last turn of the thread {options.thread!r} is {state.status}"
            if state.turn_id
            else f"the thread {options.thread!r} has no turn yet",
            remedy="begin a new turn",
        )
    return state


def _only_waits(state: ThreadState, pauses: Sequence[Pause]) -> bool:
    """Whether nothing could happen but that the turn waits again."""
    return state.status == "paused" and bool(pauses) and not state.answers and not any(map(is_late, pauses))


def _answers(options: ResumeOptions, asked: _Asked) -> Iterator[tuple[str, PersonAnswer]]:
    """What the options answer, by ids of pauses; what does not fit is refused before any of it is taken.

    Raises:
        UnknownPause, AlreadyAnswered, AnswerInvalid, InvalidArgument: An answer cannot be taken; the text names the
            option.
    """
    for text in options.answer or ():
        pause, rest = asked.meant("--answer", text)
        if rest is None:
            raise InvalidArgument(f"--answer {pause.id!r} has no answer", remedy="write --answer ID=ANSWER")
        yield pause.id, read_answer(pause, rest)
    for text in options.approve or ():
        pause, rest = asked.meant("--approve", text, approval=True)
        if rest:
            raise InvalidArgument(
                f"--approve {text[:80]!r} is more than an id", remedy="write --approve ID, or --answer ID=ANSWER"
            )
        yield pause.id, Approve(hash=pause.hash)
    for text in options.reject or ():
        pause, rest = asked.meant("--reject", text, approval=True)
        yield pause.id, Reject((rest or "").strip())
    if options.approve_all:
        yield from ((pause.id, Approve(hash=pause.hash)) for pause in asked.left())


class _Asked:
    """Finds what each option answers.

    Args:
        thread: The thread.
        pauses: What waits on it.
        gone: The ids of what waited and is answered.
    """

    def __init__(self, thread: str, pauses: Sequence[Pause], gone: frozenset[str]) -> None:
        self._thread = thread
        self._open = {pause.id: pause for pause in pauses}
        self._gone = gone
        self._taken: set[str] = set()

    def meant(self, option: str, text: str, *, approval: bool = False) -> tuple[Pause, str | None]:
        """The pause that an option's value is for, and what is left of it: None where it is an id alone.

        Args:
            option: The option.
            text: `ID`, `ID=REST`, or REST alone where one thing waits.
            approval: Whether only a call can be answered so.
        """
        pause, rest = self._split(option, text)
        if approval and pause.kind != "approval":
            raise AnswerInvalid(
                f"{option} is for a call that waits for leave, and {pause.id!r} is of kind {pause.kind!r}",
                remedy="answer with --answer ID=ANSWER",
            )
        if is_late(pause):
            raise AnswerInvalid(
                f"{option} answers {pause.id!r} after its end", remedy=f"leave {option} out; it fails with PauseExpired"
            )
        if pause.id in self._taken:
            raise InvalidArgument(f"{pause.id!r} is answered twice", remedy="answer each once")
        self._taken.add(pause.id)
        return pause, rest

    def left(self) -> list[Pause]:
        """The calls that wait and are not answered.

        Raises:
            AlreadyAnswered, InvalidArgument: There are none.
        """
        if not self._open and self._gone:
            raise self._late("--approve-all")
        waits = [pause for pause in self._open.values() if pause.kind == "approval" and not is_late(pause)]
        found = [pause for pause in waits if pause.id not in self._taken]
        if not found and not self._taken:
            raise InvalidArgument(
                f"no call waits for leave on the thread {self._thread!r}", remedy="leave --approve-all out"
            )
        return found

    def _split(self, option: str, text: str) -> tuple[Pause, str | None]:
        text = self._with_current_id(text)
        for pause_id in sorted(self._open, key=len, reverse=True):  # one may begin with another
            if text == pause_id:
                return self._open[pause_id], None
            if text.startswith(f"{pause_id}="):
                return self._open[pause_id], text[len(pause_id) + 1 :]
        known = ", ".join(map(repr, self._open))
        late = next((gone for gone in self._gone if text == gone or text.startswith(f"{gone}=")), None)
        if late is not None:
            raise AlreadyAnswered(
                f"{option} {late!r} is answered already", remedy=f"leave it out; what waits now: {known or 'nothing'}"
            )
        if not self._open and self._gone and not _LIKE_AN_ID.match(text):
            raise self._late(option)
        if not self._open:
            raise UnknownPause(
                f"the thread {self._thread!r} waits for no answer",
                remedy=f"leave {option} out to go on, or see `worldagent threads show`",
            )
        if _LIKE_AN_ID.match(text):
            raise UnknownPause(
                f"{option} {text.partition('=')[0][:200]!r} does not wait now; it may be answered already",
                remedy=f"what waits: {known}",
            )
        if len(self._open) > 1:
            raise UnknownPause(
                f"{option} does not say which of {len(self._open)} it answers", remedy=f"name one: {known}"
            )
        return next(iter(self._open.values())), text

    def _with_current_id(self, text: str) -> str:
        """An option's value with its id in the present form, where it has the form of version 0.1.0."""
        for pause_id in sorted((*self._open, *self._gone), key=len, reverse=True):  # one may begin with another
            earlier = call_id_of(pause_id)
            if text == earlier or text.startswith(f"{earlier}="):
                return pause_id + text[len(earlier) :]
        return text

    def _late(self, option: str) -> AlreadyAnswered:
        return AlreadyAnswered(
            f"what the thread {self._thread!r} waited for is answered already",
            remedy=f"leave {option} out to go on, or see `worldagent threads show`",
        )


__all__ = ["resume"]
