"""Every structured answer of a server, held to the JSON Schema that the server publishes for it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it has no types

from worldagent.hosts import role_host, sidecar


@cache
def _validator(name: str) -> Draft202012Validator:
    """The validator of one published schema: the sidecar's, or the role host's for a tool that only it has."""
    known = sidecar.schemas()
    return Draft202012Validator(known[name] if name in known else role_host.schemas()[name])


@cache
def _error_of(tool: str) -> Draft202012Validator:
    known = sidecar.schemas()
    return Draft202012Validator(known["error"] if f"{tool}.output" in known else role_host.schemas()["error"])


def check_answer(tool: str, content: Any, *, failed: bool) -> None:
    """Assert that an answer matches the published schema, and that errors alone have the form of an error.

    Args:
        tool: The tool that was called.
        content: Its structured content.
        failed: Whether the result says `isError`.
    """
    _validator(f"{tool}.output").validate(content)
    assert _error_of(tool).is_valid(content) == failed, (tool, content)


def least_arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that a tool takes: those that its input schema requires, with the schema's own examples."""
    definitions = schema.get("$defs", {})
    return {name: _example(schema["properties"][name], definitions) for name in schema.get("required", ())}


def _example(part: Mapping[str, Any], definitions: Mapping[str, Any]) -> Any:
    if "$ref" in part:
        part = definitions[part["$ref"].removeprefix("#/$defs/")] | part
    if "const" in part:
        return part["const"]
    if "examples" in part:
        return part["examples"][0]
    if "enum" in part:
        return part["enum"][0]
    if part.get("type") == "object":
        return least_arguments({"$defs": definitions, "properties": {}, **part})
    return "x"


__all__ = ["check_answer", "least_arguments"]
