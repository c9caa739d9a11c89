"""A prompt in a form that can be stored: the model's input without the role and without data of images and files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .adapter import ROLE, RoleAdapter
from .echo import EchoGuard


def shown_prompt(
    adapter: RoleAdapter, signature: Any, demos: list[Any], inputs: Mapping[str, Any], role: str | None
) -> list[dict[str, Any]]:
    """The messages of a call with `[role: N characters]` in place of the role (H5, R7).

    Args:
        adapter: Writes the messages, with the history.
        signature: The call's Signature.
        demos: Its examples.
        inputs: Its input fields.
        role: The role, if one is active.
    """
    given = dict(inputs)
    if role is not None:
        given[ROLE] = f"[role: {len(role)} characters]"
    messages = [_without_media(message) for message in adapter.format(signature, demos, given)]
    if role is None:
        return messages
    # A text of a person that became a role is in the log unchanged, and is copied nowhere else (R10).
    scrubbed, _ = EchoGuard(role).scrub_value(messages)
    return list(scrubbed)


def _without_media(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if not isinstance(content, list):
        return dict(message)
    return {
        **message,
        "content": [part if part.get("type") == "text" else {"type": part.get("type")} for part in content],
    }


__all__ = ["shown_prompt"]
