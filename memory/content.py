"""Encodes a draft as text that any database can store, without loss."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import get_args

from ..core import canonical_json, check_id
from ..core.errors import InvalidArgument
from .conversation import Draft, MessageKind

_KINDS = get_args(MessageKind)
_HALF_PAIR = re.compile("[\ud800-\udfff]")


def encode(draft: Draft, where: str) -> tuple[str, str, str]:
    """Return author, kind and body as texts that encode as UTF-8.

    Raises:
        InvalidArgument: A field does not match `Draft`. The text names the field under `where`, never its content.
    """
    author = check_id(f"{where}.author", draft.author)
    if draft.kind not in _KINDS:
        raise InvalidArgument(f"`{where}.kind` must be a kind of message", remedy=f"use one of {', '.join(_KINDS)}")
    return author, draft.kind, _json(draft.body, f"{where}.body")


def named(what: str, value: object) -> str:
    """Return `value` if it can be a key: a non-empty string that encodes as UTF-8.

    Raises:
        InvalidArgument: It cannot; the text names `what`.
    """
    if isinstance(value, str) and value and not _HALF_PAIR.search(value):
        return value
    raise InvalidArgument(f"`{what}` must be a non-empty string of valid Unicode", remedy=f"pass another `{what}`")


def _json(body: object, where: str) -> str:
    text = None
    if isinstance(body, Mapping):
        # Suppressed, and a new error is raised below, because the texts of these can repeat the content.
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            text = canonical_json(dict(body))
    if text is None:
        raise InvalidArgument(
            f"`{where}` must be a JSON object", remedy="use only strings, finite numbers, lists and objects in it"
        )
    if _HALF_PAIR.search(text):
        # Models emit halves of surrogate pairs. UTF-8 cannot encode them, but JSON can escape them.
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        text = _HALF_PAIR.sub(lambda half: f"\\u{ord(half[0]):04x}", joined)
    return text
