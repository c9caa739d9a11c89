"""One call: who calls, with which arguments, and what they can do with a turn.

A host checks how the caller proves who they are, such as a token. The `Grant` of the token makes the `Caller`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, Generic, Literal, Self, TypeVar
from urllib.parse import quote

from ...agent.threads import ThreadState
from ...core import check_id
from ...core.errors import InvalidArgument
from ...core.pauses import Pause, may_answer
from ...core.scope import MEMBER_ACCOUNT
from ...memory.attachments import reader_of
from ...memory.reports import conversation_of
from .arguments import ThreadArguments, WorkspaceArguments

A = TypeVar("A", bound=WorkspaceArguments)

ANY: Final = "*"
"""The entry in a list of ids that means every id."""

GRANT_LISTS: Final = ("workspaces", "accounts", "threads")

MAX_PREFIXES: Final = 8
_GLOB: Final = re.compile(r"[*?[]")  # what begins a glob
MAX_PREFIX_CHARACTERS: Final = 100  # of the part of a thread's id that names its account

OwnCode = Literal["forbidden", "too_many_turns", "draining", "reader_behind", "internal"]
"""The codes that a host adds to those of `core.errors`."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a caller can use.

    Attributes:
        workspaces: The ids of workspaces; `*` among them means every id.
        accounts: The ids of accounts that it can speak for; `*` means every id of a person. The account of a member,
            `member:WORKSPACE/ID`, must be listed. A call without an account is always allowed.
        threads: Globs over the ids of threads.
        operator: Whether it can resume, answer and cancel turns of other accounts, change their schedules, and change
            the memory entries of the workspace.
        thread_prefix: What `own_thread` puts before the id of a thread that the grant does not reach.

    Raises:
        InvalidArgument: An id or a glob is invalid.
    """

    workspaces: Collection[str] = ()
    accounts: Collection[str] = ()
    threads: Collection[str] = (ANY,)
    operator: bool = False
    thread_prefix: str = ""

    def __post_init__(self) -> None:
        for name in GRANT_LISTS:
            given = getattr(self, name)
            if isinstance(given, str):
                raise InvalidArgument(f"`{name}` of a grant must be a list, got a string", remedy="give a list of ids")
            object.__setattr__(self, name, frozenset(check_id(f"one of {name}", one) for one in given))

    def caller(self, workspace: str | None, account: str | None) -> Caller:
        """Find the workspace and the account of a call.

        Args:
            workspace: The workspace that the call names; None means the only one that the grant reaches.
            account: The account that the call names; None means the only one of the grant, or no account if the grant
                has none or several.

        Raises:
            Refused: The grant does not reach the workspace or the account.
            InvalidArgument: The call names no workspace, and the grant reaches more than one.
        """
        if workspace is None:
            workspace = _only(self.workspaces)
        if workspace is None and self.workspaces:
            raise InvalidArgument(
                "the call names no workspace, and its token reaches several", remedy="name one in `workspace`"
            )
        if workspace is None or not reaches(workspace, self.workspaces):
            raise forbidden("workspace")
        if account is None:
            account = _only(self.accounts)
        elif not reaches(account, self.accounts) or self._is_foreign_member(account):
            raise forbidden("account")
        return Caller(workspace=workspace, account=account, grant=self)

    def _is_foreign_member(self, account: str) -> bool:
        return account.startswith(MEMBER_ACCOUNT) and account not in self.accounts

    @classmethod
    def of_account(cls, workspace: str, account: str) -> Self:
        """Return the grant of one account that reaches only its own threads.

        Its threads' ids begin with the account's id, in which `quote` leaves no `:` and no character of a glob.

        Raises:
            InvalidArgument: It is not an id, or it is the account of a member.
        """
        if check_id("account", account).startswith(MEMBER_ACCOUNT):
            raise InvalidArgument(
                f"{account!r} is the account of a member", remedy="log people in under accounts of their own"
            )
        name = quote(account, safe="")
        if len(name) > MAX_PREFIX_CHARACTERS:
            name = f"%_{hashlib.sha256(account.encode()).hexdigest()[:32]}"  # `quote` writes no `%_`
        return cls((workspace,), (account,), (f"{name}:{ANY}",), thread_prefix=f"{name}:")

    def own_thread(self, thread: str) -> str:
        """Return the id of the caller's thread with this name: as it is if the grant reaches it, else with the prefix.

        So two accounts can both call a thread `main`.
        """
        return thread if self.allows_thread(thread) else f"{self.thread_prefix}{thread}"

    def new_thread(self, name: str) -> str:
        """Return the id of a new thread that the caller did not name: `name`, begun so that the grant reaches it.

        If the grant reaches no thread that ends with the name, this is the name.
        """
        stems = sorted(glob.removesuffix(ANY) for glob in self.threads if glob.endswith(ANY))
        ids = (f"{stem}{name}" for stem in ("", self.thread_prefix, *stems) if not _GLOB.search(stem))
        return next(filter(self.allows_thread, ids), name)

    def allows_thread(self, thread: str) -> bool:
        """Whether the caller can use a thread with this id. The thread does not have to exist.

        Who reaches a conversation reaches the threads of its background tasks.
        """
        return any(fnmatchcase(each, glob) for each in (thread, conversation_of(thread)) for glob in self.threads)

    def allows_threads_after(self, stem: str) -> bool:
        """Whether the caller can use every thread whose id begins with `stem`."""
        return any(glob.endswith(ANY) and fnmatchcase(stem, glob) for glob in self.threads)

    @property
    def allows_any_thread(self) -> bool:
        """Whether the caller can use every thread."""
        return ANY in self.threads

    @property
    def thread_prefixes(self) -> list[str]:
        """What the ids of the threads begin with that the caller can use. They are few, since a listing reads each."""
        found = [_GLOB.split(glob, maxsplit=1)[0] for glob in self.threads]
        return found if len(found) <= MAX_PREFIXES else [""]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The workspace and account of a call, after its token was checked.

    Attributes:
        workspace: The workspace. The token reaches it.
        account: The account. The token can speak for it. None means a call without an account.
        grant: What the caller can use.
    """

    workspace: str
    account: str | None = None
    grant: Grant = Grant()

    @property
    def reader(self) -> str:
        """Whose attachments the caller can use: the account's; without an account, those of equal tokens."""
        return reader_of(self.account, self.grant.threads)


@dataclass(slots=True, kw_only=True)
class CallFacts:
    """Facts that a call collects while it runs.

    Attributes:
        tool, workspace, thread, turn: Ids for a log of requests. The caller was found to reach them.
        code: The code of the answer, for the same log.
        own: Whether the caller can resume the turn. Otherwise they can only answer.
        recorded: Whether the turn's events are kept.
        kept: How many answers of a person were saved before the newest run of the turn.
        sent_events: Whether a run of the turn sent any event.
        needs: The arguments that `resume` needs again (`ThreadState.needs`).
    """

    tool: str | None = None
    workspace: str | None = None
    thread: str | None = None
    turn: str | None = None
    code: str = "ok"
    own: bool = True
    recorded: bool = True
    kept: int = 0
    sent_events: bool = False
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[A]):
    """One call, after its arguments and its caller were checked.

    Attributes:
        given: The arguments.
        caller: The workspace and account of the call.
        facts: Facts that the call collects.
    """

    given: A = field(repr=False)
    caller: Caller
    facts: CallFacts = field(default_factory=CallFacts)

    @property
    def ids(self) -> dict[str, str]:
        """The ids to repeat in the next call."""
        given = self.given
        named = {"workspace": self.caller.workspace, "account": self.caller.account}
        if isinstance(given, ThreadArguments):
            named |= {"channel": given.channel, "thread": given.thread}
        return {name: value for name, value in named.items() if value is not None}

    @property
    def is_repeated(self) -> bool:
        """Whether the client repeats the call with a person's answers to the questions of its first round."""
        return False

    def note_turn(self, state: ThreadState) -> bool:
        """Record the turn that the call is about, and return whether it is the caller's own."""
        self.facts.turn, self.facts.recorded = state.turn_id or None, state.recorded
        self.facts.own, self.facts.needs = owns_turn(self.caller, state), state.needs
        return self.facts.own


class Refused(Exception):
    """The host itself refuses a call.

    Args:
        code: The code for programs.
        problem: What is wrong, without any value that the caller sent.
        remedy: What the reader can do about it.
        turn_id: The turn that the error is about, if there is one.
    """

    def __init__(self, code: OwnCode, problem: str, *, remedy: str, turn_id: str | None = None) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.code: OwnCode = code
        self.problem = problem
        self.remedy = remedy
        self.turn_id = turn_id

    @property
    def retryable(self) -> bool:
        """Whether the same call can succeed later without a change."""
        return self.code in ("too_many_turns", "draining", "reader_behind")


def _only(ids: Collection[str]) -> str | None:
    return next(iter(ids)) if len(ids) == 1 and ANY not in ids else None


def reaches(given: str, ids: Collection[str]) -> bool:
    """Whether a token with these ids reaches the id."""
    return given in ids or ANY in ids


def forbidden(what: str) -> Refused:
    """Return the refusal for a thing that a token does not reach. It does not reveal whether the thing exists.

    Args:
        what: The kind of thing, as the contract names it: `workspace`, `account`, `thread`, `turn`.
    """
    return Refused(
        "forbidden",
        f"the token does not reach this {what}",
        remedy="name another one, or use a token that reaches it",
    )


def owns_turn(caller: Caller, state: ThreadState) -> bool:
    """Whether the caller can resume, answer and cancel a turn."""
    return caller.grant.operator or state.account is None or state.account == caller.account


def check_turn(caller: Caller, state: ThreadState) -> None:
    """Refuse a call on another account's turn.

    Args:
        caller: The caller.
        state: The state of the turn.

    Raises:
        Refused: The turn belongs to another account.
    """
    if not owns_turn(caller, state):
        raise _not_theirs(caller, state)


def check_resume(
    caller: Caller, state: ThreadState, answered: Collection[str], pauses: Sequence[Pause], *, changes: bool
) -> None:
    """Refuse to resume another account's turn, unless every answered pause names the caller as an approver.

    Args:
        caller: The caller.
        state: The state of the turn.
        answered: The ids of the pauses that the call answers.
        pauses: The pauses that the turn waits for.
        changes: Whether the call has more than answers: a role (an explicit null too), `on_role_change` or a skill.

    Raises:
        Refused: The turn belongs to another account, and an answered pause does not name the caller or is not open.
            Or the caller is only an approver, and the call has more than answers.
    """
    if owns_turn(caller, state):
        return
    known = {pause.id: pause for pause in pauses}
    named = [pause_id for pause_id in answered if pause_id in known and names(known[pause_id], caller)]
    if not answered or len(named) < len(answered):
        raise _not_theirs(caller, state)
    if changes:
        raise Refused(
            "forbidden",
            "the turn belongs to another account, and its approvers can only give answers",
            remedy="omit role, skill and on_role_change; only the account that began the turn can set them",
            turn_id=state.turn_id,
        )


def names(pause: Pause, caller: Caller) -> bool:
    """Whether a pause names the caller as an approver. A pause without approvers names no one."""
    return bool(pause.approvers) and may_answer(caller.account, pause.approvers)


def _not_theirs(caller: Caller, state: ThreadState) -> Refused:
    if state.account is None or not reaches(state.account, caller.grant.accounts):
        return forbidden("turn")
    return Refused(
        "forbidden",
        "the turn belongs to another account",
        remedy="call as the account that began it; the token can speak for that account",
    )


def with_own_thread(grant: Grant, given: A, facts: CallFacts) -> A:
    """Return arguments with the id of the caller's own thread, if they name one in `thread`.

    Every operation whose arguments have a `thread` is held to it, whatever their model: the function that runs need not
    ask whether the caller reaches the thread.

    Raises:
        Refused: The caller does not reach the thread.
    """
    named = getattr(given, "thread", None)
    if named is None:
        return given
    own = grant.own_thread(named)
    check_thread(grant, own)
    facts.thread = own
    return given if own == named else given.model_copy(update={"thread": own})


def check_thread(grant: Grant, thread: str) -> None:
    """Refuse a thread that the caller cannot use.

    Raises:
        Refused: The caller does not reach the thread.
    """
    if not grant.allows_thread(thread):
        raise forbidden("thread")
