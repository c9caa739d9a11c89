"""The page of traces says what the format is."""

from __future__ import annotations

import json

import pytest

from support.pages import DOCS, blocks, rows
from worldagent.harness.trace import TraceRecord
from worldagent.harness.trace.records import FORMAT, HEADER, KINDS

PAGE = DOCS / "guides" / "traces.md"


@pytest.mark.requirement("H5")
def test_the_tables_of_the_format_are_those_of_the_code() -> None:
    assert rows(PAGE, "kind") == [f"| `{kind}` | {what} |" for kind, what in KINDS.items()]
    fields = TraceRecord.model_fields.items()
    assert rows(PAGE, "field") == [f"| `{name}` | {field.description} |" for name, field in fields]


def test_the_line_that_the_page_shows_is_a_record() -> None:
    [line] = [line for block in blocks("jsonl") if block.page == PAGE for line in block.code.splitlines()]
    record = TraceRecord.model_validate_json(line)
    assert record.line() == line
    assert json.loads(HEADER) == {"format": FORMAT}
    assert f"`{HEADER}`" in PAGE.read_text(encoding="utf-8")
