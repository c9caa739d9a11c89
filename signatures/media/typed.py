"""Media as dspy's types, and as the parts of a message that its language models take."""

from __future__ import annotations

from typing import Any

import dspy

from .media import Media


def as_dspy(value: Any) -> Any:
    """An input field's value with each `Media` in it as dspy's type; anything else is given back as it is."""
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
    """What stands for a value in a message, where it is an image or a file, or some of them; None where it is not.

    dspy would write a marker into the text and look for markers in it later, so that a user's text could be one.
    """
    items: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if not items or not all(isinstance(item, Media | dspy.Image | dspy.File) for item in items):
        return None
    return [part for item in items for part in _parts(as_dspy(item))]


def _parts(item: Any) -> list[dict[str, Any]]:
    if isinstance(item, dspy.Image):
        # Not its own `format`, which keeps the last 32 images of the process.
        return [{"type": "image_url", "image_url": {"url": item.url}}]
    return list(item.format())


__all__ = ["as_dspy", "parts_of"]
