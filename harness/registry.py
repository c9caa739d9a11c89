"""The registry: functions, workers and shapes by name and by capability. Each name is used once (H10)."""

from __future__ import annotations

import difflib
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from copy import copy
from types import MappingProxyType
from typing import Any, Final, TypeVar

from ..core.errors import FunctionInvalid, NameTaken, ToolNotAllowed, UnknownFunction, UnknownWorker, WorldAgentError
from .function import Function
from .gate import Caller, Policy, is_like
from .worker import Worker

T = TypeVar("T")

Missing = Callable[[str], WorldAgentError | None]
"""Returns why a source does not have a function of this name now, or None if it never has one."""


GLOB: Final = frozenset("*?[")
MAX_LISTED_NAMES: Final = 20  # names that an error lists
MAX_COMPARED_NAMES: Final = 2000  # names that are compared to find similar ones
MAX_NAME_CHARACTERS: Final = 80  # characters that an error shows of an unknown name


class Registry:
    """Everything that can be called by name in one agent.

    Args:
        functions: The functions.
        workers: The workers, and functions that replace a worker.
        allow: Globs over the names that can be called. No caller can call a name that matches none of them, also if
            it is added later. None allows all names.

    Raises:
        NameTaken: Two of them have the same name.
        FunctionInvalid: An item is not a function or a worker.
    """

    def __init__(
        self,
        functions: Iterable[Function] = (),
        workers: Iterable[Worker | Function] = (),
        *,
        allow: Iterable[str] | None = None,
    ) -> None:
        self._allow = None if allow is None else tuple(allow)
        self._barred: MutableMapping[str, Function] = {}
        self._unlisted: dict[str, Function] = {}
        self._version = 0
        self._made: tuple[int, Any] | None = None
        self._shared: Registry | None = None
        self._accounts: dict[str, Registry] = {}
        self._functions: MutableMapping[str, Function] = {}
        self._workers: dict[str, Worker] = {}
        self._tasks: dict[str, Function] = {}
        self._trust: dict[str, Callable[[Function], float]] = {}
        self._shapes: set[str] = set()
        self._worker_replacements: set[str] = set()
        self._sources: MutableMapping[str, frozenset[str]] = {}
        self._prefixes: MutableMapping[str, str] = {}
        self._missing: MutableMapping[str, Missing] = {}
        self._unknown: set[str] = set()
        for what, given in (("functions", functions), ("workers", workers)):
            if isinstance(given, Function | Worker | str) or not isinstance(given, Iterable):
                raise FunctionInvalid(
                    f"{what}= must be a list, got {type(given).__name__!r}", remedy=f"pass a list, or omit {what}="
                )
        for function in functions:
            if not isinstance(function, Function):
                raise FunctionInvalid(f"{function!r} is not a function", remedy="decorate it with @tool or @flow")
            self._claim(function.name)
            self._place(self._functions, function)
        for worker in workers:
            if isinstance(worker, Function):
                self._claim(worker.name)
                self._place(self._functions, worker)
                self._worker_replacements.add(worker.name)
                continue
            self._add_worker(worker)

    @property
    def functions(self) -> Mapping[str, Function]:
        """All functions by name."""
        return MappingProxyType(self._functions)

    @property
    def workers(self) -> Mapping[str, Worker]:
        """All workers by name."""
        return MappingProxyType(self._workers)

    @property
    def worker_policies(self) -> Mapping[str, Policy]:
        """The policies of workers that have one, by the workers' names."""
        return {name: worker.policy for name, worker in self._workers.items() if worker.policy is not None}

    @property
    def offered(self) -> Mapping[str, Function]:
        """What the conversation can call: everything that can be called and is not declared with `offered=False`."""
        every = {**self._functions, **self._tasks}
        return MappingProxyType({name: function for name, function in every.items() if function.offered})

    @property
    def version(self) -> int:
        """A number that changes when the offered functions change."""
        return self._version + (0 if self._shared is None else self._shared.version)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of everything that can be called."""
        return (*self._functions, *self._tasks)

    @property
    def declared(self) -> tuple[Function, ...]:
        """Everything that was declared, including what `allow` excludes."""
        listed = {**self._functions, **self._tasks, **self._barred}
        return (*listed.values(), *(each for name, each in self._unlisted.items() if name not in listed))

    @property
    def untrusted(self) -> tuple[str, ...]:
        """The names of functions whose results may contain text by strangers."""
        return tuple(function.name for function in self._functions.values() if function.untrusted)

    @property
    def restricted(self) -> Iterator[Function]:
        """The functions whose results not everybody may see."""
        return (function for function in self._functions.values() if function.readers is not None)

    def function(self, name: str) -> Function:
        """Return the function called `name`, or the worker or shape of this name as a function.

        Raises:
            UnknownFunction: Nothing has this name.
            ToolNotAllowed: `allow` excludes it.
            HostError: Its source, such as an MCP server, cannot be reached.
        """
        found = self._functions.get(name) or self._tasks.get(name)
        if found is not None:
            return found
        self.check_allowed(name)
        if name in self._unlisted:
            return self._unlisted[name]
        absent = self.absent(name)
        if absent is not None:
            raise absent
        raise UnknownFunction(
            f"there is no function {str(name)[:MAX_NAME_CHARACTERS]!r}", remedy=_known("functions", self.names, name)
        )

    def find(self, capability: str) -> tuple[Function, ...]:
        """Return the functions with a capability, in the order in which they were passed.

        Args:
            capability: A word from the `capabilities` of a function.
        """
        return tuple(
            found for found in (*self._functions.values(), *self._tasks.values()) if capability in found.capabilities
        )

    def allows(self, name: str) -> bool:
        """Whether `allow` includes this name, whether or not anything has it."""
        return self._allow is None or is_like(name, self._allow)

    def check_allowed(self, name: str) -> None:
        """Refuse a name that exists but cannot be called.

        Raises:
            ToolNotAllowed: `allow` excludes it.
        """
        if name in self._barred:
            raise ToolNotAllowed(
                f"{str(name)[:MAX_NAME_CHARACTERS]!r} is not among the tools of this agent's profile",
                remedy=f"the tools are: {', '.join(self._allow or ())}",
            )

    def add_unlisted(self, function: Function) -> None:
        """Add a function that rules can name and no list has. Any other function of its name comes before it."""
        self._unlisted[function.name] = function

    def made_of(self, make: Callable[[], T]) -> T:
        """What `make` makes of the offered functions, made again when they change. It goes with this registry."""
        version = self.version
        if self._made is None or self._made[0] != version:
            self._made = version, make()
        found: T = self._made[1]
        return found

    @property
    def unlisted(self) -> Mapping[str, Function]:
        """The functions of `add_unlisted` by name."""
        return MappingProxyType(self._unlisted)

    def has_source(self, name: str) -> bool:
        """Whether the function of this name comes from a source, such as an MCP server, be it of one account only."""
        return any(name in names for each in self._layers for names in each._sources.values())

    def add_shape(self, function: Function, *, always: bool = False) -> bool:
        """Add a shape as a function, or replace the shape of this name from an earlier run. Its key is its name.

        Args:
            function: The shape.
            always: Whether it can be called even if `allow` excludes it.

        Returns:
            Whether it can be called.

        Raises:
            NameTaken: Its name is taken.
        """
        if function.name not in self._shapes:
            self._claim(function.name)
        self._shapes.add(function.name)
        if always:
            self._tasks[function.name] = function
            return True
        return self._place(self._tasks, function)

    def add_worker(self, worker: Worker, *, trust: Callable[[Function], float] | None = None) -> None:
        """Add a worker to those that the agent was created with.

        Args:
            worker: The worker.
            trust: Returns how much it is trusted with calls of a function, from 0 to 1 (A8); None never trusts it.

        Raises:
            NameTaken: A function, worker or shape has its name.
            ToolNotAllowed: `allow` excludes it.
            FunctionInvalid: It is not a worker, or none of the tools that it names exists.
        """
        self._add_worker(worker)
        try:
            self.check_allowed(worker.name)
            self._check_tools_of(self._tasks[worker.name])
        except WorldAgentError:
            self._discard_worker(worker.name)
            raise
        if trust is not None:
            self._trust[worker.name] = trust
        self._version += worker.offered

    def trust(self, caller: Caller, callee: Function) -> float:
        """Return how much a caller is trusted with calls of a function: the least of what its workers are."""
        given = [self._trust[name] for name in caller.workers if name in self._trust]
        return min((trusted(callee) for trusted in given), default=0.0)

    def remove_worker(self, name: str) -> None:
        """Remove a worker. Its name can be used again.

        Raises:
            UnknownWorker: No worker has this name.
            ToolNotAllowed: `allow` excludes it.
        """
        self._version += self.worker(name).offered
        self._discard_worker(name)

    def _add_worker(self, worker: object) -> None:
        if not isinstance(worker, Worker):
            raise FunctionInvalid(f"{worker!r} is not a worker", remedy="make it with Worker(name, instructions)")
        self._claim(worker.name)
        if self._place(self._tasks, worker.function):
            self._workers[worker.name] = worker

    def _discard_worker(self, name: str) -> None:
        for where in (self._workers, self._tasks, self._barred, self._trust):
            where.pop(name, None)

    def replace_source(
        self,
        source: str,
        functions: Iterable[Function],
        *,
        prefix: str = "",
        missing: Missing | None = None,
        known: bool = True,
    ) -> None:
        """Replace all functions of a source.

        Args:
            source: The source, such as an MCP server.
            functions: All functions that it has now.
            prefix: What the names of its functions begin with.
            missing: Returns why it does not have a function of a given name now.
            known: Whether the list of its functions is known to be complete.

        Raises:
            NameTaken: A name is already used outside of this source; nothing is changed.
        """
        given = {function.name: function for function in functions}
        before = self._sources.get(source, frozenset())
        for name in given:
            if not self.is_free(name, source):
                self._claim(name)
        for name in before - given.keys():
            self._functions.pop(name, None)
            self._barred.pop(name, None)
        for function in given.values():
            self._place(self._functions, function)
        self._sources[source], self._prefixes[source] = frozenset(given), prefix
        self._version += 1
        self._unknown.discard(source)
        if not known:
            self._unknown.add(source)
        if missing is not None:
            self._missing[source] = missing

    def remove_source(self, source: str) -> None:
        """Remove a source with all its functions."""
        for name in self._sources.get(source, ()):
            self._functions.pop(name, None)
            self._barred.pop(name, None)
        for where in (self._sources, self._prefixes, self._missing):
            where.pop(source, None)
        self._unknown.discard(source)
        self._version += 1
        if self._shared is not None and isinstance(self._sources, ChainMap) and not self._sources.maps[0]:
            self._shared._accounts = {key: each for key, each in self._shared._accounts.items() if each is not self}

    def of(self, account: str | None) -> Registry:
        """What the turns of an account can call: everything here, and what only this account has."""
        return self if account is None else self._accounts.get(account, self)

    def for_account(self, account: str) -> Registry:
        """The registry of an account, for sources that only it has; it lasts until the last of them is removed.

        What is added here later is there, too.
        """
        found = self._accounts.get(account)
        if found is None:
            found = self._accounts[account] = copy(self)
            found._shared, found._accounts, found._unknown, found._made = self, {}, set(), None
            found._functions, found._barred = ChainMap({}, self._functions), ChainMap({}, self._barred)
            found._sources, found._prefixes = ChainMap({}, self._sources), ChainMap({}, self._prefixes)
            found._missing = ChainMap({}, self._missing)
        return found

    def check_tools(self) -> None:
        """Check that at least one of the tools that a worker or a flow names exists.

        Nothing is checked if the agent has sources, because their functions may be added later.

        Raises:
            FunctionInvalid: None of the names exists, and none is a glob.
        """
        for function in (*self._functions.values(), *self._tasks.values()):
            self._check_tools_of(function)

    def _check_tools_of(self, function: Function) -> None:
        named = function.tools or ("*",)
        if not self._sources and not any(self._is_taken(name) or GLOB.intersection(name) for name in named):
            raise FunctionInvalid(
                f"{function.name!r} names {named[0][:MAX_NAME_CHARACTERS]!r} in its tools, which does not exist",
                remedy=_known("functions", self.names, named[0]),
            )

    @property
    def absent_prefixes(self) -> tuple[str, ...]:
        """What the names of functions begin with that sources without any function may have later."""
        empty = (self._prefixes[source] for source, names in self._sources.items() if not names)
        return tuple(prefix for prefix in empty if prefix)

    @property
    def complete(self) -> bool:
        """Whether the functions of all sources are known."""
        return not self._unknown

    def is_free(self, name: str, source: str) -> bool:
        """Whether a source can add a function of this name."""
        return not self._is_taken(name) or name in self._sources.get(source, frozenset())

    def absent(self, name: str) -> WorldAgentError | None:
        """Return the error of an unreachable source that may have a function of this name; None if there is none."""
        return next((error for missing in self._missing.values() if (error := missing(name)) is not None), None)

    def is_worker(self, name: str) -> bool:
        """Whether this is a worker, or a function that replaces a worker (H8)."""
        return name in self._workers or name in self._worker_replacements

    def runnable(self, name: str) -> Function:
        """Return the worker called `name` as a function, or the function that replaces a worker (H8).

        Raises:
            UnknownWorker: Neither exists.
            ToolNotAllowed: `allow` excludes it.
        """
        found = self._functions.get(name) if name in self._worker_replacements else None
        return found if found is not None else self.worker(name).function

    def worker(self, name: str) -> Worker:
        """Return the worker called `name`.

        Raises:
            UnknownWorker: No worker has this name.
            ToolNotAllowed: `allow` excludes it.
        """
        if name in self._workers:
            return self._workers[name]
        self.check_allowed(name)
        raise UnknownWorker(
            f"there is no worker {str(name)[:MAX_NAME_CHARACTERS]!r}",
            remedy=_known("workers", [*self._workers, *self._worker_replacements], name),
        )

    def _place(self, where: MutableMapping[str, Function], function: Function) -> bool:
        """Add a function to `where`, or to the barred ones if `allow` excludes it; return whether it can be called."""
        allowed = self.allows(function.name)
        (where if allowed else self._barred)[function.name] = function
        return allowed

    @property
    def _layers(self) -> tuple[Registry, ...]:
        return (self, *self._accounts.values()) if self._shared is None else (self,)

    def _is_taken(self, name: str) -> bool:
        return any(name in each._functions or name in each._tasks or name in each._barred for each in self._layers)

    def _claim(self, name: str) -> None:
        if self._is_taken(name):
            raise NameTaken(
                f"two functions, workers or shapes are called {name!r}", remedy="rename one of them, or list it once"
            )


def _known(what: str, names: Iterable[str], wanted: object) -> str:
    """Return a remedy that lists the known names; if there are many, the most similar ones and a few others."""
    known = sorted(names)
    if not known:
        return f"this agent has no {what}; pass {what}= to WorldAgent"
    if len(known) <= MAX_LISTED_NAMES:
        return f"the {what} are: {', '.join(known)}"
    text = str(wanted)[:MAX_NAME_CHARACTERS]
    # Comparing many thousands of names would block the event loop.
    alike = (
        known
        if len(known) <= MAX_COMPARED_NAMES
        else [name for name in known if name[:1] == text[:1]][:MAX_COMPARED_NAMES]
    )
    close = difflib.get_close_matches(text, alike, MAX_LISTED_NAMES, cutoff=0.5)
    others = [name for name in known[:MAX_LISTED_NAMES] if name not in close][: MAX_LISTED_NAMES - len(close)]
    if not close:
        return f"some of the {len(known)} {what} are: {', '.join(others)}"
    more = f"; others are: {', '.join(others)}" if others else ""
    return f"the closest of the {len(known)} {what} are: {', '.join(close)}{more}"
