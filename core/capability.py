"""What a feature brings to an agent, and what it may use of one.

A feature is a `Capability`: memory, skills, MCP servers, members are some, and a package of its own can have another.
The types of what it brings are defined in higher folders; this module only names them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from .errors import AgentClosed, WorldAgentError
from .scope import Scope

if TYPE_CHECKING:
    from pathlib import Path

    from ..graphs import Shape
    from ..harness import Function, Registry
    from ..memory.attachments import Attachments
    from ..memory.entries import Reader
    from ..memory.examples import Feedback
    from ..memory.owned import OwnedTable
    from ..storage import Database, Storage
    from .clock import Clock

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputField:
    """An input field of the conversation's Signature that a capability fills.

    Its value is made when a turn begins, and stored with the message, so that a turn that resumes has the same one.

    Attributes:
        name: Its name, an identifier without `_` at its beginning that no other field has.
        type: A type that pydantic can validate and write as JSON.
        description: What the model reads about it.
        fill: Returns the value for a turn of this scope; None leaves the field out. At most 100,000
            characters as JSON.
    """

    name: str
    type: Any = str
    description: str
    fill: Callable[[Scope], Awaitable[Any]]


@dataclass(slots=True, kw_only=True)
class Hooks:
    """What a capability does when something happens in an agent. A capability adds to the lists when it is opened.

    Attributes:
        started: The agent is about to take turns, and its functions, workers and shapes are complete.
        around: Is entered for each run of a turn and each call without one, with the account that it is for.
        resuming: A turn resumes that runs for this member, or begins again.
        readers: Returns who reads memory in the turns of an account, and what it may know; None leaves it to others.
        marks: Names the untrusted content that a turn for this member has read before it begins (M5).
        speaking: Returns what a member may know that is to speak in the conversation of a person, after its worker is
            made; None if there is no such member any more. It raises a `LifecycleError` if the member cannot speak now.
        rated: A person rated a turn: its id, and `good` or `bad`.
        ended: A turn has ended without its result, or its thread was removed. It must return at once.
        stuck: Work in the background cannot go on: a name that is the same each time, a text for people, the error.
        aged: Removes what is older than the age of this name, in `agent.upkeep.prune_by_age(NAME=...)`. It gets the
            work, with `workspace` and `dry_run`, and a time in seconds; it returns how many there were, by names.
        post: Posts an event of the workspace: its fields, and the member that gets it, if one is named.
    """

    started: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    around: list[Callable[[str | None], AbstractAsyncContextManager[object]]] = field(default_factory=list)
    resuming: list[Callable[[str], Awaitable[None]]] = field(default_factory=list)
    readers: list[Callable[[str], Awaitable[Reader | None]]] = field(default_factory=list)
    marks: list[Callable[[str], Iterable[str]]] = field(default_factory=list)
    speaking: list[Callable[[str], Awaitable[Reader | None]]] = field(default_factory=list)
    rated: list[Callable[[str, Feedback], Awaitable[object]]] = field(default_factory=list)
    ended: list[Callable[[], object]] = field(default_factory=list)
    stuck: list[Callable[[str, str, WorldAgentError], Awaitable[object]]] = field(default_factory=list)
    aged: dict[str, Callable[[Any, float], Awaitable[dict[str, int]]]] = field(default_factory=dict)
    post: list[Callable[[Mapping[str, Any], str | None], Awaitable[object]]] = field(default_factory=list)


class Runtime:
    """What a capability may use of an agent. It exists before the agent is open.

    Args:
        workspace: The agent's workspace.

    Attributes:
        workspace: The agent's workspace.
        hooks: What happens when something happens.
    """

    def __init__(self, workspace: str) -> None:
        self.workspace = workspace
        self.hooks = Hooks()

    @property
    def database(self) -> Database:
        """The agent's database. This and what follows raises `AgentClosed` while the agent is not open."""
        raise _closed()

    @property
    def storage(self) -> Storage:
        """Where the agent keeps its files."""
        raise _closed()

    @property
    def clock(self) -> Clock:
        """The agent's source of time."""
        raise _closed()

    @property
    def registry(self) -> Registry:
        """Its functions and workers."""
        raise _closed()

    @property
    def attachments(self) -> Attachments:
        """Its images and files."""
        raise _closed()


class Capability(Generic[T]):
    """A feature of an agent: `WorldAgent(..., capabilities=[...])`. A subclass overrides what it brings.

    One object can be given to several agents: what differs between them is in the `runtime`.

    Attributes:
        name: Its name, which is also that of its entry point in the group `worldagent.capabilities`. An agent has one
            capability of a name.
        migrations: Its tables: item `i` has the SQL statements that migrate them from version `i` to `i + 1`, for
            SQLite and Postgres. Released items never change. The database keeps them if the capability goes.
        owned: Those of its tables whose rows belong to an account or a thread, and are removed with it.
        page: The file of a JavaScript module with its page of the console, which exports `title` and `show(view)`.
            It is for other packages than this one.
        after: The names of the capabilities that are opened before it, if the agent has them. It need not have them.
    """

    name: ClassVar[str]
    after: ClassVar[tuple[str, ...]] = ()
    migrations: ClassVar[tuple[tuple[str, ...], ...]] = ()
    owned: ClassVar[tuple[OwnedTable, ...]] = ()
    page: ClassVar[Path | None] = None

    @classmethod
    def of(cls, given: Any) -> Self:
        """Make it from the value of a keyword of `WorldAgent`, such as `mcp={...}`."""
        return cls(given)  # type: ignore[call-arg]

    def functions(self, runtime: Runtime) -> Iterable[Function]:
        """What models and code can call. It passes the gate (H10)."""
        return ()

    def shapes(self, runtime: Runtime) -> Iterable[Shape[Any, Any]]:
        """What the agent can dispatch, besides its workers (T2)."""
        return ()

    def fields(self, runtime: Runtime) -> Iterable[InputField]:
        """The input fields of the conversation that it fills."""
        return ()

    @classmethod
    def operations(cls) -> Iterable[Any]:
        """Each `Operation` that all hosts have: as a tool of the sidecar, a path and a command.

        Import what they need here, and not with the module: an agent without a host does not need it. This is for other
        packages: those of this one are in `hosts/service/`, which no other folder imports.
        """
        return ()

    @asynccontextmanager
    async def opened(self, runtime: Runtime) -> AsyncGenerator[T]:
        """Open it, yield what `agent.get` returns, and close it with the agent.

        The database is open; the agent takes no turns yet.
        """
        yield self  # type: ignore[misc]  # a capability that opens nothing is its own handle


def _closed() -> AgentClosed:
    return AgentClosed("the agent is not open", remedy="use 'async with agent:' or 'await agent.start()'")
