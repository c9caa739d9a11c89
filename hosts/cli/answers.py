"""Answers to what turns wait for: which pause an option or an id names, and how the turn is resumed.

The commands `resume`, `approvals approve` and `approvals reject` share this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...agent.threads import ThreadFilters, ThreadRegister, ThreadState, ThreadStatus
from ...core import Scope, check_id
from ...core.errors import AlreadyAnswered, AnswerInvalid, InvalidArgument, NothingToResume, UnknownPause
from ...core.pauses import Approve, Pause, PersonAnswer, Reject, call_id_of, current_pause_id
from ..service.home import open_threads
from ..service.pauses import is_late, unanswered
from .options import ResumingOptions
from .output import Output
from .pauses import read_answer
from .sources import one_reader, role
from .turn_run import one_form, one_turn

if TYPE_CHECKING:
    from ...agent import WorldAgent
    from ...role_resolution import Role

ROLE_CHANGE_MODES: Final = ("fail", "refresh")
STATUSES_WITH_PAUSES: Final[tuple[ThreadStatus, ...]] = ("paused", "running", "stopped", "failed", "cut_off")
MAX_THREADS: Final = 1000  # threads of one status that are searched
_LIST: Final = "see `worldagent approvals list`, with the --workspace and --home of the turn"
# The id of a pause begins with the id of its turn, so an answer never looks like one by chance.
_LIKE_AN_ID: Final = re.compile(r"turn_[0-9a-f]{32}(/|-2F)")


# --- resuming --------------------------------------------------------------------------------------------------------


def checked_role(options: ResumingOptions, name: str, given: str | None) -> Role | None:
    """Check the options for resuming a turn, before anything is opened, and read the call role.

    Args:
        options: The command's options.
        name: The option or command that can read standard input besides the role.
        given: The value of that option.

    Raises:
        InvalidArgument: Options exclude each other, or one is unknown.
    """
    one_form(options.json, options.events)
    one_reader(options, name, given)
    if options.account is not None:
        check_id("--account", options.account)
    if options.role is not None and options.no_role:
        raise InvalidArgument("--role and --no-role exclude each other", remedy="give only one of them")
    if options.on_role_change not in ROLE_CHANGE_MODES:
        raise InvalidArgument(
            f"--on-role-change {options.on_role_change[:40]!r} is unknown", remedy="use fail or refresh"
        )
    return role(options.role)


async def resume_turn(
    agent: WorldAgent,
    options: ResumingOptions,
    output: Output,
    resumption: tuple[str, Mapping[str, PersonAnswer], Role | None],
) -> int:
    """Send the answers, resume the turn, print how it ended, and return the exit code.

    Args:
        agent: The agent, not started.
        options: The command's options.
        output: Where to print the turn.
        resumption: The thread of the turn, the answers by pause id, and the call role that is given again.

    Raises:
        WorldAgentError: As for `Thread.resume`, with a remedy for the command line.
    """
    from ...agent import UNSET

    thread_id, answers, call_role = resumption
    thread = agent.thread(thread_id, account=options.account)
    given = call_role if call_role is not None else None if options.no_role else UNSET
    change: Any = options.on_role_change  # checked before
    return await one_turn(
        agent, options, output, thread_id, lambda: thread.stream_resume(answers, role=given, on_role_change=change)
    )


def check_resumable(state: ThreadState | None, workspace: str, thread: str) -> ThreadState:
    """Return the state of a thread whose turn can be resumed.

    Raises:
        NothingToResume: The thread does not exist, or its last turn is over.
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


def would_only_wait(state: ThreadState, pauses: Sequence[Pause]) -> bool:
    """Whether the turn would only wait again if it were resumed."""
    return state.status == "paused" and bool(pauses) and not state.answers and not any(map(is_late, pauses))


def no_thread(workspace: str, thread: str) -> NothingToResume:
    """The error for a thread that does not exist."""
    return NothingToResume(
        f"the workspace {workspace!r} has no thread {thread!r}",
        remedy="see `worldagent threads list`, with the --workspace and --home of the turn",
    )


# --- what the options of `resume` answer -----------------------------------------------------------------------------


class OptionAnswers:
    """Finds the pauses that the options of `resume` answer. All options are checked before any answer is sent.

    Args:
        thread: The thread.
        pauses: Its open pauses.
        answered_ids: The ids of its pauses that are answered already.
    """

    def __init__(self, thread: str, pauses: Sequence[Pause], answered_ids: frozenset[str]) -> None:
        self._thread = thread
        self._open = {pause.id: pause for pause in pauses}
        self._answered_ids = answered_ids
        self._taken: set[str] = set()

    def answers(
        self, answer: Sequence[str], approve: Sequence[str], reject: Sequence[str]
    ) -> Iterator[tuple[str, PersonAnswer]]:
        """The answers that `--answer`, `--approve` and `--reject` give, with the ids of their pauses.

        Raises:
            UnknownPause, AlreadyAnswered, AnswerInvalid, InvalidArgument: An answer is not accepted; the error names
                the option.
        """
        for text in answer:
            pause, rest = self._pause_for("--answer", text)
            if rest is None:
                raise InvalidArgument(f"--answer {pause.id!r} must give an answer", remedy="write --answer ID=ANSWER")
            yield pause.id, read_answer(pause, rest)
        for text in approve:
            pause, rest = self._pause_for("--approve", text, approval=True)
            if rest:
                raise InvalidArgument(
                    f"--approve takes only an id, got {text[:80]!r}", remedy="write --approve ID, or --answer ID=ANSWER"
                )
            yield pause.id, Approve(hash=pause.hash)
        for text in reject:
            pause, rest = self._pause_for("--reject", text, approval=True)
            yield pause.id, Reject((rest or "").strip())

    def _pause_for(self, option: str, text: str, *, approval: bool = False) -> tuple[Pause, str | None]:
        """The pause that an option's value names, and the rest of the value: None if the value is only an id.

        Args:
            option: The option.
            text: `ID`, `ID=REST`, or only REST if one pause is open.
            approval: Whether the option answers only calls that wait for approval.
        """
        pause, rest = self._split(option, text)
        if approval and pause.kind != "approval":
            raise AnswerInvalid(
                f"{option} answers a call that waits for approval, and {pause.id!r} is of kind {pause.kind!r}",
                remedy="answer with --answer ID=ANSWER",
            )
        if is_late(pause):
            raise AnswerInvalid(
                f"{option} answers {pause.id!r}, which has expired", remedy=f"omit {option}; it fails with PauseExpired"
            )
        if pause.id in self._taken:
            raise InvalidArgument(f"{pause.id!r} is answered twice", remedy="answer each once")
        self._taken.add(pause.id)
        return pause, rest

    def approve_rest(self) -> dict[str, PersonAnswer]:
        """Approve the waiting calls that no other option answers, for `--approve-all`.

        Raises:
            AlreadyAnswered, InvalidArgument: No call waits for approval.
        """
        if not self._open and self._answered_ids:
            raise self._all_answered("--approve-all")
        waits = [pause for pause in self._open.values() if pause.kind == "approval" and not is_late(pause)]
        found = [pause for pause in waits if pause.id not in self._taken]
        if not found and not self._taken:
            raise InvalidArgument(
                f"no call waits for approval on the thread {self._thread!r}", remedy="omit --approve-all"
            )
        return {pause.id: Approve(hash=pause.hash) for pause in found}

    def _split(self, option: str, text: str) -> tuple[Pause, str | None]:
        text = self._with_current_id(text)
        for pause_id in sorted(self._open, key=len, reverse=True):  # one id can begin with another
            if text == pause_id:
                return self._open[pause_id], None
            if text.startswith(f"{pause_id}="):
                return self._open[pause_id], text[len(pause_id) + 1 :]
        known = ", ".join(map(repr, self._open))
        late = next(
            (
                answered_ids
                for answered_ids in self._answered_ids
                if text == answered_ids or text.startswith(f"{answered_ids}=")
            ),
            None,
        )
        if late is not None:
            raise AlreadyAnswered(
                f"{option} {late!r} is answered already", remedy=f"omit it; waiting now: {known or 'nothing'}"
            )
        if not self._open and self._answered_ids and not _LIKE_AN_ID.match(text):
            raise self._all_answered(option)
        if not self._open:
            raise UnknownPause(
                f"the thread {self._thread!r} does not wait for an answer",
                remedy=f"omit {option} to resume the turn, or see `worldagent threads show`",
            )
        if _LIKE_AN_ID.match(text):
            raise UnknownPause(
                f"{option} {text.partition('=')[0][:200]!r} is not waiting, and may be answered already",
                remedy=f"waiting now: {known}",
            )
        if len(self._open) > 1:
            raise UnknownPause(
                f"{option} must name one of the {len(self._open)} pauses that wait", remedy=f"name one: {known}"
            )
        return next(iter(self._open.values())), text

    def _with_current_id(self, text: str) -> str:
        """An option's value with its id in the current form. Version 0.1.0 wrote ids in another form."""
        for pause_id in sorted(
            (*self._open, *self._answered_ids), key=len, reverse=True
        ):  # one id can begin with another
            earlier = call_id_of(pause_id)
            if text == earlier or text.startswith(f"{earlier}="):
                return pause_id + text[len(earlier) :]
        return text

    def _all_answered(self, option: str) -> AlreadyAnswered:
        return AlreadyAnswered(
            f"all pauses of the thread {self._thread!r} are answered already",
            remedy=f"omit {option} to resume the turn, or see `worldagent threads show`",
        )


# --- calls that wait, over all threads of a workspace ----------------------------------------------------------------


async def threads_with_pauses(
    register: ThreadRegister, workspace: str, thread: str | None, output: Output | None = None
) -> tuple[ThreadState, ...]:
    """The threads whose turns can wait for a person. With `thread`, only that thread, if it exists."""
    if thread is not None:
        state = await register.find(Scope(workspace=workspace, thread=thread))
        return () if state is None else (state,)
    found: dict[str, ThreadState] = {}  # a thread can change its status in between
    for status in STATUSES_WITH_PAUSES:
        listed = await register.list(workspace, ThreadFilters.of(limit=MAX_THREADS, status=status))
        if len(listed) == MAX_THREADS and output is not None:
            output.note(f"of the threads that are {status}, only the newest {MAX_THREADS} are searched")
        found |= {state.thread: state for state in listed}
    return tuple(found.values())


async def waiting_calls(agent: WorldAgent, thread: str | None, ids: Sequence[str]) -> tuple[str, list[Pause]]:
    """The thread whose turn waits for the named calls, and the calls. Reading needs no model and no open agent.

    Raises:
        NothingToResume, UnknownPause, AlreadyAnswered, AnswerInvalid, InvalidArgument: An id cannot be answered.
    """
    ids = [current_pause_id(pause_id) for pause_id in ids]
    twice = [pause_id for pause_id in ids if ids.count(pause_id) > 1]
    if twice:
        raise InvalidArgument(f"{twice[0][:200]!r} is answered twice", remedy="answer each once")
    if thread is not None:
        agent.thread(thread)  # an invalid id is refused before anything is opened
    async with open_threads(agent.storage) as threads:
        if threads is None:
            raise _unknown(ids[0])
        register = threads.register
        states = await threads_with_pauses(register, agent.workspace, thread)
        if thread is not None and not states:
            raise no_thread(agent.workspace, thread)
        state = _one(states, ids)
        scope = Scope(workspace=agent.workspace, thread=state.thread)
        open_ = {pause.id: pause for pause in unanswered(await register.pauses(scope))}
        answered_ids = await register.answered(scope)
    for pause_id in ids:
        if pause_id in answered_ids:
            raise AlreadyAnswered(
                f"{pause_id!r} is answered already",
                remedy=f"omit it, or resume the turn with `worldagent resume {state.thread}`",
            )
        if pause_id not in open_:
            raise _unknown(pause_id)
        if open_[pause_id].kind != "approval":
            raise AnswerInvalid(
                f"{pause_id!r} does not wait for approval: it is of kind {open_[pause_id].kind!r}",
                remedy=f"answer it with `worldagent resume {state.thread} --answer ID=ANSWER`",
            )
        if is_late(open_[pause_id]):
            raise AnswerInvalid(
                f"{pause_id!r} has expired and accepts no answer",
                remedy=f"resume the turn with `worldagent resume {state.thread}`; the call fails with PauseExpired",
            )
    return state.thread, [open_[pause_id] for pause_id in ids]


def _one(states: Sequence[ThreadState], ids: Sequence[str]) -> ThreadState:
    """The thread that all ids belong to. An id begins with the id of its turn."""
    turns = {state.turn_id: state for state in states}
    found: dict[str, ThreadState] = {}
    for pause_id in ids:
        state = turns.get(call_id_of(pause_id).partition("/")[0])
        if state is None:
            raise _unknown(pause_id)
        found[state.thread] = state
    if len(found) > 1:
        raise InvalidArgument(
            f"the ids belong to {len(found)} threads: {', '.join(map(repr, found))}",
            remedy="answer one thread at a time",
        )
    return next(iter(found.values()))


def _unknown(pause_id: str) -> UnknownPause:
    return UnknownPause(f"{pause_id[:200]!r} is not waiting, and may be answered already", remedy=_LIST)
