"""Answers to what turns wait for: which pause an option or an id means, and how its turn goes on.

The commands `resume` and `approvals approve` and `reject` have this in common.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...agent.threads import ThreadRegister, ThreadState, ThreadStatus, Wanted
from ...core import Scope, check_id
from ...core.errors import AlreadyAnswered, AnswerInvalid, InvalidArgument, NothingToResume, UnknownPause
from ...core.pauses import Approve, Pause, PersonAnswer, Reject, call_id_of, current_pause_id
from ..pauses import is_late, unanswered
from .home_threads import open_threads
from .options import GoOnOptions
from .output import Output
from .pauses import read_answer
from .sources import one_reader, role
from .turn import one_form, one_turn

if TYPE_CHECKING:
    from ...agent import Turn, WorldAgent
    from ...role_resolution import Role

_CHANGES: Final = ("fail", "refresh")
_ASKING: Final[tuple[ThreadStatus, ...]] = ("paused", "running", "stopped", "failed", "cut_off")
_MOST: Final = 1000  # threads of one status that are looked at
_LIST: Final = "see `worldagent approvals list`, with the --workspace and --home of the turn"
# Ids of pauses begin with the turn's, so an answer never looks like one by chance.
_LIKE_AN_ID: Final = re.compile(r"turn_[0-9a-f]{32}(/|-2F)")


# --- going on --------------------------------------------------------------------------------------------------------


def checked_role(options: GoOnOptions, name: str, given: str | None) -> Role | None:
    """Check how the turn is to go on before anything is opened, and read the call role.

    Args:
        options: The command's options.
        name: What the command reads beside the role.
        given: What was given for it.

    Raises:
        InvalidArgument: Options do not go together.
    """
    one_form(options.json, options.events)
    one_reader(options, name, given)
    if options.account is not None:
        check_id("--account", options.account)
    if options.role is not None and options.no_role:
        raise InvalidArgument("--role and --no-role exclude each other", remedy="give one of them")
    if options.on_role_change not in _CHANGES:
        raise InvalidArgument(
            f"--on-role-change {options.on_role_change[:40]!r} is unknown", remedy="use fail or refresh"
        )
    return role(options.role)


async def go_on(
    agent: WorldAgent,
    options: GoOnOptions,
    output: Output,
    going: tuple[str, Mapping[str, PersonAnswer], Role | None],
) -> int:
    """Hand in the answers, go on with the turn, print how it ended, and give the exit code.

    Args:
        agent: Not started.
        options: The command's options.
        output: Where the turn goes.
        going: The turn's thread, what is answered by the ids of pauses, and the call role that is given again.

    Raises:
        WorldAgentError: As `Thread.resume` does; the remedy is one for the command line.
    """
    from ...agent import UNSET

    thread_id, answers, call_role = going
    thread = agent.thread(thread_id, account=options.account)
    given = call_role if call_role is not None else None if options.no_role else UNSET
    change: Any = options.on_role_change  # checked before

    async def begin() -> Turn:
        async with thread.stream_resume(answers, role=given, on_role_change=change) as stream:
            async for event in stream:
                output.event(event)
        return stream.turn

    return await one_turn(agent, options, output, thread_id, begin)


def check_resumable(state: ThreadState | None, workspace: str, thread: str) -> ThreadState:
    """The state of a thread whose turn can go on.

    Raises:
        NothingToResume: There is no such thread, or its last turn is over.
    """
    if state is None:
        raise no_thread(workspace, thread)
    if not state.resumable and state.status != "running":
        raise NothingToResume(
            f"the last turn of the thread {thread!r} is {state.status}"
            if state.turn_id
            else f"the thread {thread!r} has no turn yet",
            remedy="begin a new turn",
        )
    return state


def only_waits(state: ThreadState, pauses: Sequence[Pause]) -> bool:
    """Whether nothing could happen but that the turn waits again."""
    return state.status == "paused" and bool(pauses) and not state.answers and not any(map(is_late, pauses))


def no_thread(workspace: str, thread: str) -> NothingToResume:
    """There is no such thread to go on with."""
    return NothingToResume(
        f"the workspace {workspace!r} has no thread {thread!r}",
        remedy="see `worldagent threads list`, with the --workspace and --home of the turn",
    )


# --- what the options of `resume` answer -----------------------------------------------------------------------------


class Asked:
    """Finds what the options of `resume` answer; what does not fit is refused before any of it is taken.

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

    def answers(
        self, answer: Sequence[str], approve: Sequence[str], reject: Sequence[str]
    ) -> Iterator[tuple[str, PersonAnswer]]:
        """What `--answer`, `--approve` and `--reject` answer, by ids of pauses.

        Raises:
            UnknownPause, AlreadyAnswered, AnswerInvalid, InvalidArgument: An answer cannot be taken; the text names the
                option.
        """
        for text in answer:
            pause, rest = self._meant("--answer", text)
            if rest is None:
                raise InvalidArgument(f"--answer {pause.id!r} has no answer", remedy="write --answer ID=ANSWER")
            yield pause.id, read_answer(pause, rest)
        for text in approve:
            pause, rest = self._meant("--approve", text, approval=True)
            if rest:
                raise InvalidArgument(
                    f"--approve {text[:80]!r} is more than an id", remedy="write --approve ID, or --answer ID=ANSWER"
                )
            yield pause.id, Approve(hash=pause.hash)
        for text in reject:
            pause, rest = self._meant("--reject", text, approval=True)
            yield pause.id, Reject((rest or "").strip())

    def _meant(self, option: str, text: str, *, approval: bool = False) -> tuple[Pause, str | None]:
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

    def approve_rest(self) -> dict[str, PersonAnswer]:
        """Approve the calls that wait and are not answered, for `--approve-all`.

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
        return {pause.id: Approve(hash=pause.hash) for pause in found}

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


# --- calls that wait, over all threads of a workspace ----------------------------------------------------------------


async def asking(
    register: ThreadRegister, workspace: str, thread: str | None, output: Output | None = None
) -> tuple[ThreadState, ...]:
    """The threads that may ask somebody; with `thread` that one, where there is such a thread."""
    if thread is not None:
        state = await register.find(Scope(workspace=workspace, thread=thread))
        return () if state is None else (state,)
    found: dict[str, ThreadState] = {}  # one may go from one status to the next meanwhile
    for status in _ASKING:
        listed = await register.list(workspace, Wanted.of(limit=_MOST, status=status))
        if len(listed) == _MOST and output is not None:
            output.note(f"of the threads that are {status}, only the newest {_MOST} are looked at")
        found |= {state.thread: state for state in listed}
    return tuple(found.values())


async def waiting_calls(agent: WorldAgent, thread: str | None, ids: Sequence[str]) -> tuple[str, list[Pause]]:
    """The thread whose turn waits for what is named, and the calls. Read before the agent opens, with no model.

    Raises:
        NothingToResume, UnknownPause, AlreadyAnswered, AnswerInvalid, InvalidArgument: Something cannot be answered so.
    """
    ids = [current_pause_id(pause_id) for pause_id in ids]
    twice = [pause_id for pause_id in ids if ids.count(pause_id) > 1]
    if twice:
        raise InvalidArgument(f"{twice[0][:200]!r} is answered twice", remedy="answer each once")
    if thread is not None:
        agent.thread(thread)  # refused before anything is opened
    async with open_threads(agent.storage) as threads:
        if threads is None:
            raise _unknown(ids[0])
        register = threads.register
        states = await asking(register, agent.workspace, thread)
        if thread is not None and not states:
            raise no_thread(agent.workspace, thread)
        state = _one(states, ids)
        scope = Scope(workspace=agent.workspace, thread=state.thread)
        open_ = {pause.id: pause for pause in unanswered(await register.pauses(scope))}
        gone = await register.answered(scope)
    for pause_id in ids:
        if pause_id in gone:
            raise AlreadyAnswered(
                f"{pause_id!r} is answered already",
                remedy=f"leave it out, or go on with `worldagent resume {state.thread}`",
            )
        if pause_id not in open_:
            raise _unknown(pause_id)
        if open_[pause_id].kind != "approval":
            raise AnswerInvalid(
                f"{pause_id!r} waits for no leave: it is of kind {open_[pause_id].kind!r}",
                remedy=f"answer it with `worldagent resume {state.thread} --answer ID=ANSWER`",
            )
        if is_late(open_[pause_id]):
            raise AnswerInvalid(
                f"{pause_id!r} has expired, and takes no answer any more",
                remedy=f"go on without it with `worldagent resume {state.thread}`; it fails with PauseExpired",
            )
    return state.thread, [open_[pause_id] for pause_id in ids]


def _one(states: Sequence[ThreadState], ids: Sequence[str]) -> ThreadState:
    """The thread that all ids are of: an id begins with that of its turn."""
    turns = {state.turn_id: state for state in states}
    found: dict[str, ThreadState] = {}
    for pause_id in ids:
        state = turns.get(call_id_of(pause_id).partition("/")[0])
        if state is None:
            raise _unknown(pause_id)
        found[state.thread] = state
    if len(found) > 1:
        raise InvalidArgument(
            f"the ids are of {len(found)} threads: {', '.join(map(repr, found))}", remedy="answer thread by thread"
        )
    return next(iter(found.values()))


def _unknown(pause_id: str) -> UnknownPause:
    return UnknownPause(f"{pause_id[:200]!r} does not wait now; it may be answered already", remedy=_LIST)
