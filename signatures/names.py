"""Checks the names that a host gives its models. Loads dspy only if one of the models is an object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..core.errors import InvalidArgument
from .engines import is_local

if TYPE_CHECKING:
    from .adapter import LM


def check_named(models: Mapping[str, str | LM]) -> dict[str, str | LM]:
    """Return models by name, after checking them.

    Raises:
        InvalidArgument: A name has a slash or is empty, or a model is neither a text nor a `dspy.LM`.
    """
    for name, model in models.items():
        if not isinstance(name, str) or not name.strip() or "/" in name or is_local(name):
            raise InvalidArgument(f"{name!r} cannot name a model", remedy="use a text without '/' that is not 'local'")
        if not isinstance(model, str) and not _is_lm(model):
            raise InvalidArgument(
                f"the model {name!r} must be a model string or a dspy.LM, got {type(model).__name__!r}",
                remedy="pass one of these",
            )
    return dict(models)


def _is_lm(model: object) -> bool:
    import dspy

    return isinstance(model, dspy.BaseLM)


__all__ = ["check_named"]
