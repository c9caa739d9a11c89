"""An agent that the user's own code makes, named as `MODULE:NAME`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import InvalidArgument, WorldAgentError
from ...core.naming import named_object, raised_at

if TYPE_CHECKING:
    from ...agent import WorldAgent

_REMEDY: Final = "name a WorldAgent, or a function that makes one, as MODULE:NAME, such as shop:agent"


def named_app(spec: str, option: str) -> Any:
    """Import what `MODULE:NAME` names. Its module is looked for in the current folder first.

    Args:
        spec: `MODULE:NAME`. NAME can have dots.
        option: The option or variable that names it, for errors.

    Raises:
        InvalidArgument: The module or name does not exist, or its code fails. The error does not repeat the message of
            the failure, since it can hold anything.
        WorldAgentError: The module raised it; it is passed on unchanged.
    """
    return named_object(spec, option=option, remedy=_REMEDY)


def made_agent(found: Any, spec: str, option: str) -> WorldAgent:
    """Return the agent that `found` is or makes, not started.

    Args:
        found: A `WorldAgent`, or a function without arguments that makes one.
        spec: Its name, for errors.
        option: The option or variable that names it, for errors.

    Raises:
        InvalidArgument: It is not an agent, does not make one, fails, or is open already.
        WorldAgentError: Its code raised it; it is passed on unchanged.
    """
    from ...agent import WorldAgent  # slow to load, and the command line reads its options first

    made = found
    if not isinstance(made, WorldAgent):
        made = _made(found, spec, option)
    if not isinstance(made, WorldAgent):
        if inspect.iscoroutine(made):
            made.close()
        given = "returns" if callable(found) else "is"
        raise InvalidArgument(f"{option}: {spec!r} {given} a {type(made).__name__}", remedy=_REMEDY)
    if made.is_open:
        raise InvalidArgument(f"{option}: the agent of {spec!r} is open already", remedy="name one that is not started")
    return made


def takes_arguments(maker: Callable[..., Any]) -> bool:
    """Whether a function cannot be called without arguments."""
    with suppress(ValueError):  # a function written in C has no signature; calling it shows what it takes
        try:
            inspect.signature(maker).bind()
        except TypeError:
            return True
    return False


def _made(maker: Any, spec: str, option: str) -> Any:
    if not callable(maker):
        return maker
    problem = "takes arguments"
    if not takes_arguments(maker):
        try:
            return maker()
        except WorldAgentError:
            raise
        except (Exception, SystemExit) as error:  # the message of the app's error can hold anything
            problem = f"fails with {raised_at(error)}"
    raise InvalidArgument(
        f"{option}: {spec!r} {problem}",
        remedy="name a function that makes an agent and can be called without arguments",
    )
