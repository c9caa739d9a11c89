"""Forms that a person fills in, out of their JSON Schema: how fields are told, and how what was typed is read."""

from ._forms import (
    Schema,
    field_lines,
    fields,
    is_text,
    misfits,
    named,
    plain,
    read_json,
    read_pairs,
    resolved,
    types_of,
)

__all__ = [
    "Schema",
    "field_lines",
    "fields",
    "is_text",
    "misfits",
    "named",
    "plain",
    "read_json",
    "read_pairs",
    "resolved",
    "types_of",
]
