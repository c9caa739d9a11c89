"""Converts the answer of a server to the result of a call. Media are stored or described. Nothing is trusted."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from ...core.errors import AttachmentInvalid
from ..failures import Failure
from .failures import ServerFailures
from .listed import ToolAnswer, ToolSpec

Keep = Callable[[bytes, str, str], Awaitable[Mapping[str, Any]]]
"""Stores media: content, media type and name. Returns a reference as JSON, or raises `AttachmentInvalid`."""

CONTENT: Final[Mapping[str, Any]] = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}],
    "description": "a text, or blocks of text, media and links",
}
"""The schema of the result of a tool that declares none."""


async def result_of_answer(
    spec: ToolSpec, answer: ToolAnswer, *, failures: ServerFailures, limit: int, keep: Keep | None
) -> Any | Failure:
    """Return the result for the caller.

    Args:
        spec: The tool.
        answer: The answer of the server.
        failures: Makes the failures of the server.
        limit: The limit of characters of the result as JSON.
        keep: Stores media; without it they are only described.
    """
    if answer.asks or answer.beyond or answer.state is not None:
        return failures.asking(spec.name)
    if answer.failed:
        return failures.failed(spec.name, _text(answer.content))
    if spec.result is not None or (not answer.content and answer.structured is not None):
        value: Any = answer.structured
    else:
        value = await blocks_of(answer.content, keep)
        if all(block.keys() == {"type", "text"} for block in value):
            value = _text(value)
    size = len(json.dumps(value, ensure_ascii=False))
    return value if size <= limit else failures.too_long(spec.name, size, limit)


async def blocks_of(content: Sequence[Mapping[str, Any]], keep: Keep | None) -> list[dict[str, Any]]:
    """Convert content blocks for the caller: text unchanged, media as references."""
    return [await _block(block, keep) for block in content]


async def _block(block: Mapping[str, Any], keep: Keep | None) -> dict[str, Any]:
    plain = {name: value for name, value in block.items() if name not in ("_meta", "annotations")}
    if plain.get("type") == "resource" and isinstance(plain.get("resource"), Mapping):
        return {"type": "resource", **await _block(plain["resource"], keep)}
    data = plain.pop("data", None) or plain.pop("blob", None)
    if data is None:
        return plain
    media_type, kind = str(plain.pop("mimeType", "application/octet-stream")), str(plain.get("type", "file"))
    content = _decoded(str(data))
    described = {**plain, "type": kind, "media_type": media_type, "bytes": len(content)}
    if keep is not None and content:
        try:
            return {**described, "attachment": dict(await keep(content, media_type, kind))}
        except AttachmentInvalid as error:
            described["left_out"] = error.problem
    return described


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        return b""


def _text(content: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(str(block["text"]) for block in content if block.get("type") == "text" and "text" in block)


__all__ = ["CONTENT", "Keep", "blocks_of", "result_of_answer"]
