"""Functions and workers by name. One name means one thing (H10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ..core.errors import FunctionInvalid, NameTaken, UnknownFunction, UnknownWorker
from ._function import Function
from ._worker import Worker


class Registry:
    """What can be called by name in one agent.

    Args:
        functions: The functions.
        workers: The workers.

    Raises:
        NameTaken: Two of them have one name.
        FunctionInvalid: Something else was given.
    """

    def __init__(self, functions: Iterable[Function] = (), workers: Iterable[Worker] = ()) -> None:
        self._functions: dict[str, Function] = {}
        self._workers: dict[str, Worker] = {}
        for function in functions:
            if not isinstance(function, Function):
                raise FunctionInvalid(f"{function!r} is not a function", remedy="decorate it with @tool or @flow")
            self._claim(function.name)
            self._functions[function.name] = function
        for worker in workers:
            if not isinstance(worker, Worker):
                raise FunctionInvalid(f"{worker!r} is not a worker", remedy="make it with Worker(name, instructions)")
            self._claim(worker.name)
            self._workers[worker.name] = worker

    @property
    def functions(self) -> Mapping[str, Function]:
        """All functions by name."""
        return MappingProxyType(self._functions)

    @property
    def workers(self) -> Mapping[str, Worker]:
        """All workers by name."""
        return MappingProxyType(self._workers)

    def function(self, name: str) -> Function:
        """Return the function called `name`.

        Raises:
            UnknownFunction: There is none.
        """
        if name in self._functions:
            return self._functions[name]
        raise UnknownFunction(f"there is no function {name!r}", remedy=_known("functions", self._functions))

    def worker(self, name: str) -> Worker:
        """Return the worker called `name`.

        Raises:
            UnknownWorker: There is none.
        """
        if name in self._workers:
            return self._workers[name]
        raise UnknownWorker(f"there is no worker {name!r}", remedy=_known("workers", self._workers))

    def _claim(self, name: str) -> None:
        if name in self._functions or name in self._workers:
            raise NameTaken(f"two functions or workers are called {name!r}", remedy="rename one of them")


def _known(what: str, names: Iterable[str]) -> str:
    known = ", ".join(sorted(names))
    return f"the {what} are: {known}" if known else f"this agent has no {what}; pass {what}= to WorldAgent"
