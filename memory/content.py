"""How a draft becomes text that any database can hold, and comes back as it was."""

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
        InvalidArgument: A field is not as `Draft` says; the text names it under `where`, never its content.
    """
    author = check_id(f"{where}.author", draft.author)
    if draft.kind not in _KINDS:
        raise InvalidArgument(f"{where}.kind is not a kind of message", remedy=f"use one of {', '.join(_KINDS)}")
    return author, draft.kind, _json(draft.body, f"{where}.body")


def named(what: str, value: object) -> str:
    """Return `value` if it can stand as a key: a text, not empty, that encodes as UTF-8.

    Raises:
        InvalidArgument: It cannot; the text names `what`.
    """
    if isinstance(value, str) and value and not _HALF_PAIR.search(value):
        return value
    raise InvalidArgument(f"{what} is not a key", remedy=f"give {what} a text that is not empty and is valid Unicode")


def _json(body: object, where: str) -> str:
    text = None
    if isinstance(body, Mapping):
        # Raised anew outside: the texts of these may repeat the content.
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            text = canonical_json(dict(body))
    if text is None:
        raise InvalidArgument(f"{where} is not a JSON object", remedy="give it strings, finite numbers, lists, objects")
    if _HALF_PAIR.search(text):
        # Models emit halves of surrogate pairs. UTF-8 has no place for them, JSON has: its escape.
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        text = _HALF_PAIR.sub(lambda half: f"\\u{ord(half[0]):04x}", whole)
    return text
