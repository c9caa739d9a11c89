"""Arguments first, then settings; files become workers. What a worker is, is `harness`'s; a model, `signatures`'."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...core import Clock
from ...core.errors import FunctionInvalid, InvalidArgument
from ...core.validation import is_text
from ...graphs import GraphOptions, Shape
from ...harness import Function, GenerationOptions, Worker, load_workers, tool
from ...harness.limits import CHOSEN, Limits, Usage
from ...profiles import Profile
from ...signatures import check_named
from ...storage import Database
from ...tools import BuiltinTools
from ..settings import limits_of
from .profiles import bounded

if TYPE_CHECKING:
    from ...signatures import LM, ModelCaller, ModelOptions
    from ..settings import Settings

T = TypeVar("T")

TurnModel = str | Sequence[str] | None
"""The model of one turn: a name from `WorldAgent(models=...)` or a model string, or several to try in turn."""

_MOST: Final = 8  # models that one turn names
_LENGTH: Final = 200  # characters of a name


def all_workers(given: Iterable[object], settings: Settings) -> tuple[Worker | Function, ...]:
    """The workers of an agent, those from the folder of the settings last.

    Args:
        given: Workers, functions in a worker's place, files and folders.
        settings: Where the folder is.

    Raises:
        WorkerInvalid: A file does not fit.
        MissingExtra: There are files, and the extra `yaml` is not installed.
        InvalidArgument: `given` is one of these and no list of them.
    """
    if isinstance(given, str | bytes | os.PathLike | Worker | Function):
        raise InvalidArgument("workers= is one worker or one place", remedy="pass a list, as workers=[...]")
    found: list[Worker | Function] = []
    for each in listed("workers", given):
        if isinstance(each, os.PathLike):
            found += load_workers(each)
        else:
            found.append(each)  # type: ignore[arg-type]  # the registry looks at what it is
    if settings.workers is not None:
        found += load_workers(settings.workers.expanduser())
    return tuple(found)


def all_tools(given: Iterable[object]) -> tuple[Function, ...]:
    """The tools of an agent as Functions.

    Args:
        given: Python functions, what `@tool` and `@flow` made, tools of dspy and of LangChain.

    Raises:
        FunctionInvalid: One has no docstring, a parameter without a type hint, or is something else.
        InvalidArgument: `given` is one tool and no list of them.
    """
    if isinstance(given, BuiltinTools):
        raise InvalidArgument("tools= is a BuiltinTools", remedy="pass it as builtin_tools=")
    return tuple(map(_function, listed("tools", given)))


def _function(given: Any) -> Function:
    if isinstance(given, Function):
        return given
    if isinstance(given, Worker | Shape):
        what, name = ("worker", given.name) if isinstance(given, Worker) else ("shape", given.key)
        raise FunctionInvalid(f"tools= has the {what} {name!r}", remedy=f"pass it in {what}s=")
    made = tool()(given)  # not `tool(given)`: None would be no argument
    if not made.description:
        raise FunctionInvalid(
            f"the tool {made.name!r} has no docstring",
            remedy="say in its docstring what it does: models choose by that",
        )
    return made


def listed(what: str, given: Iterable[T]) -> tuple[T, ...]:
    """Several of something, as one argument gives them.

    Raises:
        InvalidArgument: It gives one, a text or nothing.
    """
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return tuple(given)
    raise InvalidArgument(f"{what}= is of type {type(given).__name__!r}", remedy=f"pass a list, as {what}=[...]")


def all_models(given: Mapping[str, str | LM] | None, settings: Settings) -> dict[str, str | LM]:
    """The models that have names, those of the settings below those given.

    Raises:
        InvalidArgument: A name or a model does not fit.
    """
    return check_named({**settings.models, **(given or {})})


def model_options(settings: Settings, workspace: str) -> ModelOptions:
    """How models are called for a workspace."""
    from ...signatures import ModelOptions  # loads dspy

    return ModelOptions(
        timeout=settings.model_timeout,
        attempts=settings.model_attempts,
        backoff=settings.model_backoff,
        echo=settings.echo,
        takes=settings.model_takes,
        tools=settings.model_tools,
        cache_hints=settings.model_cache_hints,
        workspace=workspace,
    )


def generation_options(settings: Settings, profile: Profile) -> GenerationOptions:
    """How answers are generated: as the profile says, and for the rest as the settings do."""
    return profile.options.over(settings.model_options or GenerationOptions())


def graph_options(settings: Settings, profile: Profile) -> Callable[[ModelCaller], GraphOptions]:
    """The bounds of turns, by their model."""

    def options(caller: ModelCaller) -> GraphOptions:
        options = GraphOptions(
            max_rounds=settings.max_rounds,
            history_limit=settings.history_limit,
            history_characters=settings.history_characters or caller.history_characters,
            summaries=not caller.plain if settings.history_summaries is None else settings.history_summaries,
            attachment_fallback=settings.attachment_fallback,
        )
        return bounded(options, profile)

    return options


def open_usage(settings: Settings, database: Database, clock: Clock) -> Usage:
    """What turns, accounts and workspaces may use, and have."""
    return Usage(
        database,
        clock,
        turn=Limits(calls=settings.turn_calls, tokens=settings.turn_tokens, cost=settings.turn_cost),
        account=limits_of(settings.account_limits),
        workspace=limits_of(settings.workspace_limits),
        depth=settings.turn_depth,
        chosen=None if "turn_calls" in settings.model_fields_set else CHOSEN,
        at_once=settings.turn_concurrency,
    )


def turn_models(given: TurnModel) -> tuple[str, ...]:
    """The names in a turn's `model=`: of its model, and of those tried after it.

    Raises:
        InvalidArgument: They are no names.
    """
    names = (given,) if isinstance(given, str) else () if given is None else given
    if not isinstance(names, Sequence) or not all(isinstance(name, str) and name.strip() for name in names):
        raise InvalidArgument(
            f"model= of type {type(given).__name__!r} names no model",
            remedy="give a model string or a name from WorldAgent(models=...), or a list of them",
        )
    if len(names) > _MOST or any(len(name) > _LENGTH or not is_text(name) for name in names):
        raise InvalidArgument(
            f"model= has more than {_MOST} names, or one that is too long",
            remedy=f"give {_MOST} names at most, of {_LENGTH} characters each",
        )
    return tuple(names)


__all__ = [
    "TurnModel",
    "all_models",
    "all_tools",
    "all_workers",
    "generation_options",
    "graph_options",
    "listed",
    "model_options",
    "open_usage",
    "turn_models",
]
