"""Media as dspy's types, and as the message parts of its language models."""

from __future__ import annotations

from typing import Any

import dspy

from .media import Media


def as_dspy(value: Any) -> Any:
    """Replace each `Media` in an input field's value by dspy's type. Anything else is returned unchanged."""
    match value:
        case Media(kind="image", url=url):
            return dspy.Image(url)
        case Media(url=url):
            return dspy.File(file_data=url)
        case list() | tuple() if any(isinstance(item, Media) for item in value):
            return [as_dspy(item) for item in value]
        case _:
            return value


def parts_of(value: Any) -> list[dict[str, Any]] | None:
    """The message parts for a value that is an image or a file, or a list of them; None for anything else.

    dspy would write a marker into the text and search for markers later, so a user's text could imitate one.
    """
    items: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if not items or not all(isinstance(item, Media | dspy.Image | dspy.File) for item in items):
        return None
    return [part for item in items for part in _parts(as_dspy(item))]


def _parts(item: Any) -> list[dict[str, Any]]:
    if isinstance(item, dspy.Image):
        # not its own `format`, which keeps the last 32 images of the process
        return [{"type": "image_url", "image_url": {"url": item.url}}]
    return list(item.format())


__all__ = ["as_dspy", "parts_of"]
