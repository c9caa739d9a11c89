"""The published JSON Schemas of the arguments and answers of tools."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema


def wire_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a model, without titles made of Python names and without docstrings of classes.

    Args:
        model: The model of a message on the wire.
    """
    return model.model_json_schema(schema_generator=_Untitled)


def output_schema(answer: type[BaseModel], error: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of everything that a tool puts into `structuredContent`: its answer or an error.

    Clients validate errors against the published `outputSchema` too. They replace an answer that does not match with
    their own error. MCP before 2026-07-28 requires `"type": "object"` at the top level.

    Args:
        answer: The model of the tool's answer.
        error: The model of the tool's error.
    """
    either: Any = answer | error
    return {"type": "object", **TypeAdapter(either).json_schema(schema_generator=_Untitled)}


class _Untitled(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def get_title_from_name(self, name: str) -> str:
        return name

    def generate(self, schema: Any, mode: Any = "validation") -> dict[str, Any]:
        made = super().generate(schema, mode)
        for part in (made, *made.get("$defs", {}).values()):
            part.pop("title", None)
            part.pop("description", None)
        return made


__all__ = ["output_schema", "wire_schema"]
