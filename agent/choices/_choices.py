"""Arguments first, then settings; files become workers. What a worker is, is `harness`'s; a model, `signatures`'."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ...core.errors import InvalidArgument
from ...graphs import GraphOptions
from ...harness import Function, Worker, load_workers
from ...harness.running import OnError
from ...signatures import LM, ModelCaller, ModelOptions
from ...signatures.models import Models, check_named

if TYPE_CHECKING:
    from .._settings import Settings


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
    for each in given:
        if isinstance(each, os.PathLike):
            found += load_workers(each)
        else:
            found.append(each)  # type: ignore[arg-type]  # the registry looks at what it is
    if settings.workers is not None:
        found += load_workers(settings.workers.expanduser())
    return tuple(found)


def all_models(given: Mapping[str, str | LM] | None, settings: Settings) -> dict[str, str | LM]:
    """The models that have names, those of the settings below those given.

    Raises:
        InvalidArgument: A name or a model does not fit.
    """
    return check_named({**settings.models, **(given or {})})


def open_models(
    own: ModelCaller,
    named: Mapping[str, str | LM],
    settings: Settings,
    options: ModelOptions,
    on_error: OnError | None,
) -> Models:
    """The models of an agent whose own is open; the others open at their first use."""
    return Models(own, named, api_base=settings.api_base, options=options, on_error=on_error)


def model_options(settings: Settings) -> ModelOptions:
    """How models are called."""
    return ModelOptions(
        timeout=settings.model_timeout,
        attempts=settings.model_attempts,
        backoff=settings.model_backoff,
        echo=settings.echo,
        takes=settings.model_takes,
        tools=settings.model_tools,
    )


def graph_options(settings: Settings, caller: ModelCaller) -> GraphOptions:
    """The bounds of turns."""
    return GraphOptions(
        max_rounds=settings.max_rounds,
        history_limit=settings.history_limit,
        history_characters=settings.history_characters or caller.history_characters,
        summaries=not caller.plain if settings.history_summaries is None else settings.history_summaries,
        attachment_fallback=settings.attachment_fallback,
    )


__all__ = ["all_models", "all_workers", "graph_options", "model_options", "open_models"]
