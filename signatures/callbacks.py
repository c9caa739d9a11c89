"""Callbacks of dspy that the embedder passed: they see the calls of predictors and modules, and no role (R7)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from traceback import format_exception
from typing import Any
from uuid import uuid4

import dspy
from dspy.utils.callback import BaseCallback

from ..core.errors import WorldAgentError

_LOG = logging.getLogger("worldagent.traces")


def dspy_callbacks(callbacks: Iterable[object]) -> list[BaseCallback]:
    """Return those that are callbacks of dspy."""
    return [each for each in callbacks if isinstance(each, BaseCallback)]


class Watch:
    """Notifies callbacks of a predictor's calls, as of calls of the `dspy.Predict` without the role.

    Args:
        callbacks: The callbacks. If one fails, the others are still called.
        hide: Takes texts of the role out of a value.
    """

    def __init__(self, callbacks: Iterable[BaseCallback], hide: Callable[[Any], Any]) -> None:
        self._callbacks, self._hide = tuple(callbacks), hide

    def began(self, predict: dspy.Predict, inputs: Mapping[str, Any]) -> str:
        """Notify that a call begins, and return its id."""
        call_id = uuid4().hex
        given = {"kwargs": self._hide(dict(inputs))}  # the form in which dspy passes the inputs of a module
        self._notify("on_module_start", call_id=call_id, instance=predict, inputs=given)
        return call_id

    def ended(self, call_id: str, fields: Mapping[str, Any] | None, error: WorldAgentError | None) -> None:
        """Notify that a call ended, with its output fields or its error; with neither it was interrupted."""
        outputs = None if fields is None else dspy.Prediction(**self._hide(dict(fields)))
        self._notify("on_module_end", call_id=call_id, outputs=outputs, exception=error)

    def _notify(self, name: str, **given: Any) -> None:
        for each in self._callbacks:
            _notify(each, name, given)


class RoleFreeCallback(BaseCallback):
    """Passes dspy's notifications about the parts of a module on to a callback, without the role.

    Args:
        callback: The callback.
        hide: Takes texts of the role out of a value.
    """

    def __init__(self, callback: BaseCallback, hide: Callable[[Any], Any]) -> None:
        self._callback, self._hide = callback, hide

    def __getattribute__(self, name: str) -> Any:
        return partial(self._pass_on, name) if name.startswith("on_") else super().__getattribute__(name)

    def _pass_on(self, name: str, **given: Any) -> None:
        shown = {key: self._hide(value) if key in ("inputs", "outputs") else value for key, value in given.items()}
        error = given.get("exception")
        text = "" if error is None else "".join(format_exception(error))  # with what caused it
        if self._hide(text) != text:
            shown["exception"] = RuntimeError(self._hide(str(error)))
        _notify(self._callback, name, shown)


def _notify(callback: BaseCallback, name: str, given: Mapping[str, Any]) -> None:
    try:
        getattr(callback, name)(**given)
    except Exception as error:  # broad: a callback can raise anything; its message may be secret
        _LOG.warning("the callback %s failed with %s", type(callback).__name__, type(error).__name__)
