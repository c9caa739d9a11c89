"""Answers to what turns wait for: which pause an option or an id names, and how the turn is resumed.

The commands `resume`, `approvals approve` and `approvals reject` share this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

from ...agent.threads import ThreadState
from ...core import check_id
from ...core.errors import AlreadyAnswered, AnswerInvalid, InvalidArgument, NothingToResume, UnknownPause
from ...core.pauses import Approve, Pause, PersonAnswer, Reject, call_id_of, current_pause_id
from ..service.home import HomeThread, open_threads
from ..service.pauses import is_late, unanswered
from ..service.typed_answers import read_answer
from .options import ResumingOptions
from .output import Output, last_turn_text
from .sources import one_reader, role
from .turn_run import one_form, one_turn

if TYPE_CHECKING:
    from ...agent import WorldAgent
    from ...role_resolution import Role

ROLE_CHANGE_MODES: Final = ("fail", "refresh")
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
    thread_id: str,
    answers: Mapping[str, PersonAnswer],
    call_role: Role | None,
) -> int:
    """Send the answers, resume the turn, print how it ended, and return the exit code.

    Args:
        agent: The agent, not started.
        options: The command's options.
        output: Where to print the turn.
        thread_id: The thread of the turn.
        answers: The answers by pause id.
        call_role: The call role that is given again.

    Raises:
        WorldAgentError: As for `Thread.resume`, with a remedy for the command line.
    """
    from ...agent import UNSET

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
        raise NothingToResume(last_turn_text(state), remedy="begin a new turn")
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


# --- which pauses options and ids name --------------------------------------------------------------------------------


class OptionAnswers:
    """Finds the pauses that options and ids name. All of them are checked before any answer is sent.

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

    @classmethod
    async def of(cls, thread: HomeThread) -> Self:
        """The pauses of a thread, which does not have to be open."""
        pauses, answered = unanswered(await thread.pauses()), await thread.answered()
        return cls(thread.scope.thread or "", pauses, answered)

    @property
    def open(self) -> tuple[Pause, ...]:
        """The pauses that wait for an answer."""
        return tuple(self._open.values())

    def answers(
        self, answer: Sequence[str], approve: Sequence[str], reject: Sequence[str]
    ) -> Iterator[tuple[str, PersonAnswer]]:
        """The answers that `--answer`, `--approve` and `--reject` give, with the ids of their pauses.

        Raises:
            UnknownPause, AlreadyAnswered, AnswerInvalid, InvalidArgument: An answer is not accepted; the error names
                the option.
        """
        for text in answer:
            pause, rest = self._take("--answer ", text)
            if rest is None:
                raise InvalidArgument(f"--answer {pause.id!r} must give an answer", remedy="write --answer ID=ANSWER")
            yield pause.id, read_answer(pause, rest)
        for text in approve:
            pause, rest = self._take("--approve ", text, approval=True)
            if rest:
                raise InvalidArgument(
                    f"--approve takes only an id, got {text[:80]!r}", remedy="write --approve ID, or --answer ID=ANSWER"
                )
            yield pause.id, Approve(hash=pause.hash)
        for text in reject:
            pause, rest = self._take("--reject ", text, approval=True)
            yield pause.id, Reject((rest or "").strip())

    def calls(self, ids: Sequence[str]) -> list[Pause]:
        """The calls that wait for approval under these ids.

        Raises:
            UnknownPause, AlreadyAnswered, AnswerInvalid, InvalidArgument: An id cannot be answered.
        """
        found: list[Pause] = []
        for pause_id in ids:
            pause, rest = self._take("", pause_id, approval=True)
            if rest is not None:
                raise unknown_pause(pause_id)
            found.append(pause)
        return found

    def approve_rest(self) -> dict[str, PersonAnswer]:
        """Approve the waiting calls that no other option answers, for `--approve-all`.

        Raises:
            AlreadyAnswered, InvalidArgument: No call waits for approval.
        """
        if not self._open and self._answered_ids:
            raise self._all_answered("--approve-all")
        waits = [pause for pause in self.open if pause.kind == "approval" and not is_late(pause)]
        found = [pause for pause in waits if pause.id not in self._taken]
        if not found and not self._taken:
            raise InvalidArgument(
                f"no call waits for approval on the thread {self._thread!r}", remedy="omit --approve-all"
            )
        return {pause.id: Approve(hash=pause.hash) for pause in found}

    def _take(self, option: str, text: str, *, approval: bool = False) -> tuple[Pause, str | None]:
        """As `_split`, for a pause that accepts an answer, and only this one."""
        pause, rest = self._split(option, text)
        if approval and pause.kind != "approval":
            raise AnswerInvalid(
                f"{pause.id!r} does not wait for approval: it is of kind {pause.kind!r}",
                remedy=f"answer it with `worldagent resume {self._thread} --answer ID=ANSWER`",
            )
        if is_late(pause):
            raise AnswerInvalid(
                f"{pause.id!r} has expired and accepts no answer",
                remedy=f"resume the turn with `worldagent resume {self._thread}`; the call fails with PauseExpired",
            )
        if pause.id in self._taken:
            raise InvalidArgument(f"{pause.id!r} is answered twice", remedy="answer each once")
        self._taken.add(pause.id)
        return pause, rest

    def _split(self, option: str, text: str) -> tuple[Pause, str | None]:
        """The pause that an option's value names, and the rest of the value: None if the value is only an id.

        Args:
            option: The option and a blank, for errors; empty for an id alone.
            text: `ID`, `ID=REST`, or only REST if one pause is open.
        """
        known = f"waiting now: {', '.join(map(repr, self._open)) or 'nothing'}"
        for pause_id in sorted((*self._open, *self._answered_ids), key=len, reverse=True):  # one can begin with another
            for form in (pause_id, call_id_of(pause_id)):  # version 0.1.0 wrote ids in another form
                if text != form and not text.startswith(f"{form}="):
                    continue
                if pause_id not in self._open:
                    raise AlreadyAnswered(
                        f"{option}{pause_id!r} is answered already",
                        remedy=f"omit it, or resume the turn with `worldagent resume {self._thread}`; {known}",
                    )
                return self._open[pause_id], None if text == form else text[len(form) + 1 :]
        like_an_id = not option or _LIKE_AN_ID.match(text)
        if not like_an_id and not self._open:
            if self._answered_ids:
                raise self._all_answered(option.strip())
            raise UnknownPause(
                f"the thread {self._thread!r} does not wait for an answer",
                remedy=f"omit {option.strip()} to resume the turn, or see `worldagent threads show`",
            )
        if like_an_id:
            raise UnknownPause(
                f"{option}{text.partition('=')[0][:200]!r} is not waiting, and may be answered already", remedy=known
            )
        if len(self._open) > 1:
            raise UnknownPause(f"{option}must name one of the {len(self._open)} pauses that wait", remedy=known)
        return self.open[0], text

    def _all_answered(self, option: str) -> AlreadyAnswered:
        return AlreadyAnswered(
            f"all pauses of the thread {self._thread!r} are answered already",
            remedy=f"omit {option} to resume the turn, or see `worldagent threads show`",
        )


async def waiting_calls(agent: WorldAgent, thread: str | None, ids: Sequence[str]) -> tuple[str, list[Pause]]:
    """The thread whose turn waits for the named calls, and the calls. Reading needs no model and no open agent.

    Raises:
        NothingToResume, UnknownPause, AlreadyAnswered, AnswerInvalid, InvalidArgument: An id cannot be answered.
    """
    if thread is not None:
        agent.thread(thread)  # an invalid id is refused before anything is opened
    async with open_threads(agent.storage, agent.workspace) as threads:
        if threads is None:
            raise unknown_pause(ids[0])
        if thread is None:
            states, _ = await threads.with_pauses()
        else:
            state = await threads.thread(thread).state()
            if state is None:
                raise no_thread(agent.workspace, thread)
            states = [state]
        turns = {state.turn_id: state.thread for state in states}
        found: dict[str, None] = {}
        for pause_id in ids:  # an id begins with the id of its turn
            name = turns.get(call_id_of(current_pause_id(pause_id)).partition("/")[0])
            if name is None:
                raise unknown_pause(pause_id)
            found[name] = None
        if len(found) > 1:
            raise InvalidArgument(
                f"the ids belong to {len(found)} threads: {', '.join(map(repr, found))}",
                remedy="answer one thread at a time",
            )
        [name] = found
        return name, (await OptionAnswers.of(threads.thread(name))).calls(ids)


def unknown_pause(pause_id: str) -> UnknownPause:
    """The error for an id that no open pause has."""
    return UnknownPause(
        f"{pause_id[:200]!r} is not waiting, and may be answered already",
        remedy="see `worldagent approvals list`, with the --workspace and --home of the turn",
    )
