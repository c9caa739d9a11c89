"""Asks capabilities for what they bring and do. They are code of others: what they raise of their own names them (D5).

`on_error` gets the original, whose text can hold anything. Errors of this package pass as they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from pydantic import TypeAdapter

from ..core import Scope, canonical_json
from ..core.capability import Capability, Hooks, InputField, Runtime
from ..core.errors import CapabilityFailed, InvalidArgument, WorldAgentError
from ..harness.guard import OnError

MAX_CHARACTERS: Final = 100_000
"""The length of an input that a capability fills, as JSON. It is stored with each message."""

SLOW_SECONDS: Final = 30.0
"""What takes longer has a line in the log: it is code of others, and what waits for it says nothing."""

CLOSE_SECONDS: Final = 30.0
"""What has not closed by then is given up, so that an agent that drains ends."""

_LOG: Final = logging.getLogger("worldagent.agent")


@dataclass(frozen=True, slots=True)
class Asking:
    """Asks one capability.

    Attributes:
        name: Its name.
        on_error: Receives the original of an error that is replaced.
    """

    name: str
    on_error: OnError | None

    @contextmanager
    def __call__(self, what: str, *, over: bool = False) -> Generator[None]:
        """Run code of the capability.

        Args:
            what: What the code is, for the error.
            over: Whether what it belongs to has ended and stays as it ended: all errors go to `on_error` alone.

        Raises:
            CapabilityFailed: The code raised another error than one of this package.
        """
        problem: BaseException
        slow = self._noted(what)
        try:
            yield
        except WorldAgentError as error:
            if not over:
                raise
            problem = error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            problem = error  # nobody cancels this task: something that the code waited for was cancelled
        except Exception as error:  # it is code of others
            problem = error
        else:
            return
        finally:
            if slow is not None:
                slow.cancel()
        if self.on_error is not None:
            self.on_error(problem)
        kind = type(problem).__name__
        del problem
        if over:
            return
        failure = CapabilityFailed(
            f"{what} of the capability {self.name!r} raised {kind}",
            remedy="see the error that `on_error` gets, or start the agent without the capability",
        )
        try:
            raise failure
        finally:
            failure.__context__ = None  # the original, whose frames and text can hold anything

    def _noted(self, what: str) -> asyncio.TimerHandle | None:
        """Write to the log if this takes long."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # the agent is made, and no loop runs
            return None
        says = "%s of the capability %r has not ended after %g seconds"
        return loop.call_later(SLOW_SECONDS, _LOG.warning, says, what, self.name, SLOW_SECONDS)

    def fields(self, given: Iterable[InputField]) -> tuple[InputField, ...]:
        """The inputs that it fills."""
        return tuple(replace(each, fill=self._filling(each)) for each in given)

    def _filling(self, field: InputField) -> Callable[[Scope], Awaitable[Any]]:
        async def fill(scope: Scope) -> Any:
            with self(f"the input {field.name!r}"):
                value = await field.fill(scope)
            return None if value is None else self._fitting(field, value)

        return fill

    def _fitting(self, field: InputField, value: Any) -> Any:
        """The value of an input as JSON."""
        from ..signatures.converse import json_input  # it loads dspy, which a turn has loaded

        problem = ""
        try:
            made = json_input(field.name, TypeAdapter(field.type), value)
            if len(canonical_json(made)) <= MAX_CHARACTERS:
                return made
            problem = f"the input {field.name!r} is longer than {MAX_CHARACTERS:,} characters as JSON"
        except InvalidArgument as error:
            problem = error.problem
        raise CapabilityFailed(
            f"{problem}; the capability {self.name!r} fills it", remedy="return another value from `fill`, or None"
        )

    async def open(self, capability: Capability[Any], runtime: Runtime, opened: AsyncExitStack) -> Any:
        """Open it until `opened` closes; returns what it yields. What it adds to the hooks is asked like all else."""
        known: dict[str, Collection[Any]] = {each: [*getattr(runtime.hooks, each)] for each in _HOOKS}
        entered = AsyncExitStack()
        with self("opening"):
            found = await entered.enter_async_context(capability.opened(runtime))

        async def close() -> None:
            late = asyncio.timeout(CLOSE_SECONDS)
            with self("closing"):
                try:
                    async with late:
                        await entered.aclose()
                except TimeoutError:
                    if not late.expired():
                        raise
            if late.expired():
                raise CapabilityFailed(
                    f"closing of the capability {self.name!r} was given up after {CLOSE_SECONDS:g} seconds",
                    remedy="let it end what it has begun when its `opened` is left",
                )

        opened.push_async_callback(close)
        for name in _HOOKS:
            self._take_over(name, getattr(runtime.hooks, name), known[name])
        return found

    def _take_over(self, name: str, hooks: Any, known: Collection[Any]) -> None:
        """Ask the hooks of this name that the capability has added."""
        make: Callable[[str, Any], Any] = {"around": self._around, "marks": self._marks, "ended": self._ended}.get(
            name, self._hook
        )
        places = [each for each in hooks if each not in known] if name == "aged" else range(len(known), len(hooks))
        for place in places:
            hooks[place] = make(f"the hook {name!r}", hooks[place])

    def _hook(self, what: str, hook: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def asked(*given: Any) -> Any:
            with self(what):
                return await hook(*given)

        return asked

    def _ended(self, what: str, hook: Callable[[], object]) -> Callable[[], None]:
        def told() -> None:
            with self(what, over=True):
                hook()

        return told

    def _marks(self, what: str, hook: Callable[[str], Iterable[str]]) -> Callable[[str], Iterable[str]]:
        def asked(member: str) -> Iterable[str]:
            with self(what):
                return tuple(hook(member))

        return asked

    def _around(self, what: str, hook: Any) -> Any:
        @asynccontextmanager
        async def asked(account: str | None) -> AsyncGenerator[None]:
            entered = AsyncExitStack()
            with self(what):
                await entered.enter_async_context(hook(account))
            try:
                yield
            except GeneratorExit:  # the garbage collector closes it
                raise
            except BaseException as error:  # the run has failed with it, and fails with no other
                with self(what, over=True):
                    await entered.__aexit__(type(error), error, error.__traceback__)
                raise
            # The run is recorded as it has ended: a caller that got an error now would send its message again.
            with self(what, over=True):
                await entered.aclose()

        return asked


_HOOKS = tuple(each.name for each in fields(Hooks))
