"""Imports the object that a user names as `MODULE:NAME`, such as an agent or a metric."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from contextlib import suppress
from operator import attrgetter
from types import ModuleType
from typing import Any

from .errors import InvalidArgument, WorldAgentError


def named_object(spec: str, *, option: str, remedy: str) -> Any:
    """Import the object that `MODULE:NAME` names. Its module is looked for in the current folder first.

    Args:
        spec: `MODULE:NAME`. NAME can have dots.
        option: The option, or what else names it, for the error.
        remedy: What to name instead.

    Raises:
        InvalidArgument: The module or name does not exist, or its code fails. The error does not repeat the message of
            the failure.
        WorldAgentError: The module raised it; it is passed on unchanged.
    """
    module, colon, name = spec.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise InvalidArgument(f"{option} must be MODULE:NAME, got {spec[:80]!r}", remedy=remedy)
    found = _imported(module, option)
    with suppress(AttributeError):
        return attrgetter(name)(found)
    raise InvalidArgument(f"{option}: the module {module!r} has no {name!r}", remedy=remedy)


def _imported(module: str, option: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    problem = f"importing {module!r} fails"
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        wanted = error.name or module
        if module == wanted or module.startswith(f"{wanted}."):
            problem = f"the module {wanted!r} does not exist"
        else:
            problem += f", because the module {wanted!r}, which it needs, does not exist"
    except WorldAgentError:
        raise
    # The person who named it sees whatever its code raises. A script that is not a module can end the process.
    except (Exception, SystemExit) as error:
        problem += f" with {raised_at(error)}"
    raise InvalidArgument(
        f"{option}: {problem}",
        remedy="run the command in the folder of the module, and check that Python can import it",
    )


def raised_at(error: BaseException) -> str:
    """The type and place of an exception, without its message."""
    kind = type(error).__name__
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{kind} in {os.path.basename(error.filename)!r}, line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    # A line of the user's own code says more than a line of a library that it calls.
    here = os.path.join(os.getcwd(), "")
    own = [frame for frame in frames if frame.filename.startswith(here) and "site-packages" not in frame.filename]
    at = (own or frames)[-1]
    return f"{kind} in {os.path.basename(at.filename)!r}, line {at.lineno}"
