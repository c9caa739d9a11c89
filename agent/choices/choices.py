"""Tools, workers, models and limits from arguments, then settings. `harness` and `signatures` define what they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...core import Clock
from ...core.errors import FunctionInvalid, InvalidArgument
from ...core.validation import is_text
from ...graphs import GraphOptions, Shape
from ...harness import Function, GenerationOptions, Worker, load_workers, tool
from ...harness.limits import DEFAULT_CHOSEN_CALLS, Limits, Usage
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

MAX_TURN_MODELS: Final = 8  # models in one turn's `model=`
MAX_MODEL_NAME_CHARACTERS: Final = 200  # characters of a name


def all_workers(given: Iterable[object], settings: Settings) -> tuple[Worker | Function, ...]:
    """Return the workers of an agent; those from the folder of the settings come last.

    Args:
        given: Workers, functions that replace a worker, files and folders.
        settings: Names the folder.

    Raises:
        WorkerInvalid: A file is invalid.
        MissingExtra: There are worker files, and the extra `yaml` is not installed.
        InvalidArgument: `given` is a single value and not a list.
    """
    if isinstance(given, str | bytes | os.PathLike | Worker | Function):
        raise InvalidArgument("`workers` must be a list", remedy="pass workers=[...]")
    found: list[Worker | Function] = []
    for each in listed("workers", given):
        if isinstance(each, os.PathLike):
            found += load_workers(each)
        else:
            found.append(each)  # type: ignore[arg-type]  # the registry checks the type
    if settings.workers is not None:
        found += load_workers(settings.workers.expanduser())
    return tuple(found)


def all_tools(given: Iterable[object]) -> tuple[Function, ...]:
    """Return the tools of an agent as Functions.

    Args:
        given: Python functions, results of `@tool` and `@flow`, tools of dspy and of LangChain.

    Raises:
        FunctionInvalid: One has no docstring or a parameter without a type hint, or is something else.
        InvalidArgument: `given` is a single value and not a list.
    """
    if isinstance(given, BuiltinTools):
        raise InvalidArgument("`tools` must not be a BuiltinTools", remedy="pass it as builtin_tools=")
    return tuple(map(_function, listed("tools", given)))


def _function(given: Any) -> Function:
    if isinstance(given, Function):
        return given
    if isinstance(given, Worker | Shape):
        what, name = ("worker", given.name) if isinstance(given, Worker) else ("shape", given.key)
        raise FunctionInvalid(f"`tools` contains the {what} {name!r}", remedy=f"pass it in {what}s=")
    made = tool()(given)  # not `tool(given)`: None would mean no argument
    if not made.description:
        raise FunctionInvalid(
            f"the tool {made.name!r} has no docstring",
            remedy="describe in its docstring what it does: models choose tools by that",
        )
    return made


def listed(what: str, given: Iterable[T]) -> tuple[T, ...]:
    """Return the values of an argument as a tuple.

    Raises:
        InvalidArgument: It is a single value, a string or None.
    """
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return tuple(given)
    raise InvalidArgument(f"`{what}` must be a list, got {type(given).__name__!r}", remedy=f"pass {what}=[...]")


def all_models(given: Mapping[str, str | LM] | None, settings: Settings) -> dict[str, str | LM]:
    """Return the named models; those in `given` override those of the settings.

    Raises:
        InvalidArgument: A name or a model is invalid.
    """
    return check_named({**settings.models, **(given or {})})


def model_options(settings: Settings, workspace: str) -> ModelOptions:
    """Return the options of model calls for a workspace."""
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
    """Return the generation options of the profile, completed by those of the settings."""
    return profile.options.over(settings.model_options or GenerationOptions())


def graph_options(settings: Settings, profile: Profile) -> Callable[[ModelCaller], GraphOptions]:
    """Return the limits of a turn's graph, as a function of its model."""

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
    """Return the usage limits of turns, accounts and workspaces, with their usage so far."""
    return Usage(
        database,
        clock,
        turn=Limits(calls=settings.turn_calls, tokens=settings.turn_tokens, cost=settings.turn_cost),
        account=limits_of(settings.account_limits),
        workspace=limits_of(settings.workspace_limits),
        depth=settings.turn_depth,
        chosen=None if "turn_calls" in settings.model_fields_set else DEFAULT_CHOSEN_CALLS,
        at_once=settings.turn_concurrency,
    )


def turn_models(given: TurnModel) -> tuple[str, ...]:
    """Return the names in a turn's `model=`: its model, and those to try after it.

    Raises:
        InvalidArgument: They are not names.
    """
    names = (given,) if isinstance(given, str) else () if given is None else given
    if not isinstance(names, Sequence) or not all(isinstance(name, str) and name.strip() for name in names):
        raise InvalidArgument(
            f"`model` must be a non-empty string or a list of them, got {type(given).__name__!r}",
            remedy="pass a model string or a name from WorldAgent(models=...), or a list of them",
        )
    if len(names) > MAX_TURN_MODELS or any(
        len(name) > MAX_MODEL_NAME_CHARACTERS or not is_text(name) for name in names
    ):
        raise InvalidArgument(
            f"`model` has more than {MAX_TURN_MODELS} names, or a name that is too long",
            remedy=f"pass at most {MAX_TURN_MODELS} names of at most {MAX_MODEL_NAME_CHARACTERS} characters",
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
