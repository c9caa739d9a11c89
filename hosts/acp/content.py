"""The content blocks of a prompt as the text and the attachments of a message."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
)

from ...core.errors import AttachmentInvalid, AttachmentNotTaken, InvalidArgument
from ...memory.attachments import Attachment, Attachments
from ...memory.attachments.sources import is_textual
from ..bounds import MAX_TEXT

Block: TypeAlias = (
    TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """The message of a prompt.

    Attributes:
        text: The texts of its blocks in order. A block with other content is a link `[NAME](URI)` in it.
        attachments: The contents of the other blocks, stored.
    """

    text: str
    attachments: tuple[Attachment, ...]


async def read_prompt(blocks: Sequence[Block], attachments: Attachments, *, account: str | None = None) -> Prompt:
    """Read the blocks of a prompt.

    Args:
        blocks: The blocks.
        attachments: Where the content of images and embedded resources is stored.
        account: For whose limits it counts.

    Raises:
        InvalidArgument: The prompt is blank, or its text is too long.
        AttachmentNotTaken: A block is audio.
        AttachmentInvalid: The content of a block cannot be attached.
    """
    parts: list[str] = []
    attached: list[Attachment] = []
    for before, block in zip((None, *blocks), blocks, strict=False):
        if isinstance(block, AudioContentBlock):
            raise AttachmentNotTaken(
                "audio is not supported in prompts", remedy="send a text; images and embedded resources are supported"
            )
        if isinstance(block, TextContentBlock):
            parts += ["\n", block.text] if isinstance(before, TextContentBlock) else [block.text]
        elif isinstance(block, ResourceContentBlock):
            parts.append(_link(block.name, block.uri))
        else:
            added = await _attach(block, partial(attachments.add, account=account))
            parts.append(_link(f"{_uri(block)} (empty)" if added is None else added.name, _uri(block)))
            attached += [added] if added is not None else []
    text = "".join(parts)
    if len(text) > MAX_TEXT:
        raise InvalidArgument(
            f"the texts of the prompt have more than {MAX_TEXT:,} characters",
            remedy="send long texts as embedded resources",
        )
    if not text.strip():
        raise InvalidArgument("the prompt is blank", remedy="write a message")
    return Prompt(text, tuple(attached))


async def _attach(
    block: ImageContentBlock | EmbeddedResourceContentBlock, add: Callable[..., Awaitable[Attachment]]
) -> Attachment | None:
    """Store the content of a block; None if it is an empty text, which cannot be attached."""
    name = unquote(urlsplit(_uri(block)).path) or None
    if isinstance(block, ImageContentBlock):
        return await add(_decoded(block.data), name=name, media_type=block.mime_type)
    resource = block.resource
    if isinstance(resource, BlobResourceContents):
        return await add(_decoded(resource.blob), name=name, media_type=resource.mime_type)
    if not resource.text:
        return None
    textual = resource.mime_type is not None and is_textual(resource.mime_type)
    kind = resource.mime_type if textual else "text/plain"  # by its name, a file `.ts` would be a video
    return await add(resource.text.encode("utf-8", "replace"), name=name, media_type=kind)


def _uri(block: ImageContentBlock | EmbeddedResourceContentBlock) -> str:
    return block.resource.uri if isinstance(block, EmbeddedResourceContentBlock) else block.uri or ""


def _link(name: str, uri: str) -> str:
    return f"[{name}]({uri})" if uri else f"[{name}]"


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        pass
    raise AttachmentInvalid("a block of the prompt is not base64", remedy="encode its content in base64")
