"""Functions, workers and shapes by name, and by what they are good for. One name means one thing (H10)."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from ..core.errors import (
    FunctionInvalid,
    NameTaken,
    ToolNotAllowed,
    UnknownFunction,
    UnknownWorker,
    WorldAgentError,
)
from .function import Function
from .gate import Policy, is_like
from .worker import Worker

Missing = Callable[[str], WorldAgentError | None]
"""Says why a source does not have a function of this name, or None where it never would."""


_GLOB: Final = frozenset("*?[")
_LISTED: Final = 20  # names that an error tells
_COMPARED: Final = 2000  # names that are looked through for those
_SHOWN: Final = 80  # characters of a name that there is not


class Registry:
    """What can be called by name in one agent.

    Args:
        functions: The functions.
        workers: The workers, and functions that stand in a worker's place.
        allow: Globs over the names of what can be called; what fits none cannot, by any caller, whenever it comes.
            None is all.

    Raises:
        NameTaken: Two of them have one name.
        FunctionInvalid: Something else was given.
    """

    def __init__(
        self,
        functions: Iterable[Function] = (),
        workers: Iterable[Worker | Function] = (),
        *,
        allow: Iterable[str] | None = None,
    ) -> None:
        self._allow = None if allow is None else tuple(allow)
        self._barred: dict[str, Function] = {}
        self._version = 0
        self._functions: dict[str, Function] = {}
        self._workers: dict[str, Worker] = {}
        self._tasks: dict[str, Function] = {}
        self._shapes: set[str] = set()
        self._stand_ins: set[str] = set()
        self._sources: dict[str, frozenset[str]] = {}
        self._missing: dict[str, Missing] = {}
        self._unknown: set[str] = set()
        for what, given in (("functions", functions), ("workers", workers)):
            if isinstance(given, Function | Worker | str) or not isinstance(given, Iterable):
                raise FunctionInvalid(
                    f"{what}= is of type {type(given).__name__!r}", remedy=f"give a list, or leave {what}= out"
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
                self._stand_ins.add(worker.name)
                continue
            if not isinstance(worker, Worker):
                raise FunctionInvalid(f"{worker!r} is not a worker", remedy="make it with Worker(name, instructions)")
            self._claim(worker.name)
            if self._place(self._tasks, worker.function):
                self._workers[worker.name] = worker

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
        """The policies that workers have of their own, by the workers' names."""
        return {name: worker.policy for name, worker in self._workers.items() if worker.policy is not None}

    @property
    def offered(self) -> Mapping[str, Function]:
        """What the conversation can call: all that can be called, but for what is declared with `offered=False`."""
        every = {**self._functions, **self._tasks}
        return MappingProxyType({name: function for name, function in every.items() if function.offered})

    @property
    def version(self) -> int:
        """Another number once something else is offered."""
        return self._version

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all that can be called."""
        return (*self._functions, *self._tasks)

    @property
    def declared(self) -> tuple[Function, ...]:
        """All that there is, also what cannot be called since it is not allowed."""
        return (*self._functions.values(), *self._tasks.values(), *self._barred.values())

    @property
    def untrusted(self) -> tuple[str, ...]:
        """The names of functions whose results may hold what strangers wrote."""
        return tuple(function.name for function in self._functions.values() if function.untrusted)

    def function(self, name: str) -> Function:
        """Return what is called `name`: a function, or a worker or shape as one.

        Raises:
            UnknownFunction: There is none.
            ToolNotAllowed: It is not among what can be called.
            HostError: Its source, such as an MCP server, cannot be reached.
        """
        found = self._functions.get(name) or self._tasks.get(name)
        if found is not None:
            return found
        self.check_allowed(name)
        absent = self.absent(name)
        if absent is not None:
            raise absent
        raise UnknownFunction(
            f"there is no function {str(name)[:_SHOWN]!r}", remedy=_known("functions", self.names, name)
        )

    def find(self, capability: str) -> tuple[Function, ...]:
        """Return what is good for something, in the order in which it was given.

        Args:
            capability: One of the words that a function declares.
        """
        return tuple(
            found for found in (*self._functions.values(), *self._tasks.values()) if capability in found.capabilities
        )

    def allows(self, name: str) -> bool:
        """Whether something of this name can be called, if there is such."""
        return self._allow is None or is_like(name, self._allow)

    def check_allowed(self, name: str) -> None:
        """Refuse what there is but cannot be called.

        Raises:
            ToolNotAllowed: It is not among what can be called.
        """
        if name in self._barred:
            raise ToolNotAllowed(
                f"{str(name)[:_SHOWN]!r} is not among the tools of this agent's profile",
                remedy=f"the tools are: {', '.join(self._allow or ())}",
            )

    def add_shape(self, function: Function, *, always: bool = False) -> bool:
        """Add a shape as a function, or put it in the place of the one of an earlier run. Its key is its name.

        Args:
            function: The shape.
            always: Whether it can be called whatever is allowed.

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

    def replace_source(
        self, source: str, functions: Iterable[Function], *, missing: Missing | None = None, known: bool = True
    ) -> None:
        """Put functions in the place of all that a source gave before.

        Args:
            source: Where they are from, such as an MCP server.
            functions: All that it has now.
            missing: Says why it does not have another one.
            known: Whether it is known what it has.

        Raises:
            NameTaken: One has a name that is not the source's to give; nothing is changed.
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
        self._sources[source] = frozenset(given)
        self._version += 1
        self._unknown.discard(source)
        if not known:
            self._unknown.add(source)
        if missing is not None:
            self._missing[source] = missing

    def check_tools(self) -> None:
        """Make sure that of the tools that a worker or a flow names there is one, as far as that can be known.

        Raises:
            FunctionInvalid: There is none, they are no globs, and no source could ever give one.
        """
        if self._sources:  # what one has may come later
            return
        for function in (*self._functions.values(), *self._tasks.values()):
            named = function.tools or ("*",)
            if not any(self._is_taken(name) or _GLOB.intersection(name) for name in named):
                raise FunctionInvalid(
                    f"{function.name!r} names {named[0][:_SHOWN]!r} in its tools, and there is none",
                    remedy=_known("functions", self.names, named[0]),
                )

    @property
    def complete(self) -> bool:
        """Whether it is known what all sources have."""
        return not self._unknown

    def is_free(self, name: str, source: str) -> bool:
        """Whether a source can give a function of this name."""
        return not self._is_taken(name) or name in self._sources.get(source, frozenset())

    def absent(self, name: str) -> WorldAgentError | None:
        """Why a function that is not there may be one of a source that cannot be reached; None where it is none."""
        return next((error for missing in self._missing.values() if (error := missing(name)) is not None), None)

    def is_worker(self, name: str) -> bool:
        """Whether this is a worker, or a function that was given in a worker's place (H8)."""
        return name in self._workers or name in self._stand_ins

    def runnable(self, name: str) -> Function:
        """Return the worker called `name` as a function, or the function that was given in a worker's place (H8).

        Raises:
            UnknownWorker: There is neither.
            ToolNotAllowed: It is not among what can be called.
        """
        found = self._functions.get(name) if name in self._stand_ins else None
        return found if found is not None else self.worker(name).function

    def worker(self, name: str) -> Worker:
        """Return the worker called `name`.

        Raises:
            UnknownWorker: There is none.
            ToolNotAllowed: It is not among what can be called.
        """
        if name in self._workers:
            return self._workers[name]
        self.check_allowed(name)
        raise UnknownWorker(
            f"there is no worker {str(name)[:_SHOWN]!r}",
            remedy=_known("workers", [*self._workers, *self._stand_ins], name),
        )

    def _place(self, where: dict[str, Function], function: Function) -> bool:
        """Put something where it can be called, or where it is known and cannot."""
        allowed = self.allows(function.name)
        (where if allowed else self._barred)[function.name] = function
        return allowed

    def _is_taken(self, name: str) -> bool:
        return name in self._functions or name in self._tasks or name in self._barred

    def _claim(self, name: str) -> None:
        if self._is_taken(name):
            raise NameTaken(
                f"two functions, workers or shapes are called {name!r}", remedy="rename one of them, or list it once"
            )


def _known(what: str, names: Iterable[str], wanted: object) -> str:
    """The names there are; of many those that are like the one that was wanted, and some others where these are few."""
    known = sorted(names)
    if not known:
        return f"this agent has no {what}; pass {what}= to WorldAgent"
    if len(known) <= _LISTED:
        return f"the {what} are: {', '.join(known)}"
    text = str(wanted)[:_SHOWN]
    # To compare them all would hold up the process where there are many thousands.
    alike = known if len(known) <= _COMPARED else [name for name in known if name[:1] == text[:1]][:_COMPARED]
    close = difflib.get_close_matches(text, alike, _LISTED, cutoff=0.5)
    others = [name for name in known[:_LISTED] if name not in close][: _LISTED - len(close)]
    if not close:
        return f"some of the {len(known)} {what} are: {', '.join(others)}"
    more = f"; others are: {', '.join(others)}" if others else ""
    return f"of the {len(known)} {what} these are nearest: {', '.join(close)}{more}"
