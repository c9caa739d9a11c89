"""Answers and errors of the service as results of tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp.types import CallToolResult, TextContent

from ...core.errors import WorldAgentError
from ..service.call import Refused
from ..service.next_steps import error_record
from ..service.records import Answer, ErrorAnswer, TurnAnswer


def answered(answer: Answer) -> CallToolResult:
    """Return an answer as a tool result. Its text block is the agent's answer if there is one, else the JSON.

    From the JSON, a client that shows only text can read what a paused turn asks, and in `next` how to answer.
    """
    content = answer.model_dump(mode="json")
    text = answer.turn.text if isinstance(answer, TurnAnswer) and answer.turn.status == "done" else None
    return CallToolResult(content=[_block(text or _as_json(content))], structured_content=content)


def failed(failure: WorldAgentError | Refused, advice: Mapping[str, Any]) -> CallToolResult:
    """Return an error as a tool result. `advice` has fields that replace or extend its record."""
    error = error_record(failure, advice)
    content = ErrorAnswer(error=error).model_dump(mode="json", exclude_none=True)
    sentence = f"{error.code}: {error.problem}; {error.remedy}"
    return CallToolResult(
        content=[_block(f"{sentence}\n{_as_json(content)}")], structured_content=content, is_error=True
    )


def _block(text: str) -> TextContent:
    return TextContent(type="text", text=text)


def _as_json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False)
