"""Answers to forms: fields that an answer leaves out have the form's defaults."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from worldagent.core.errors import AnswerInvalid
from worldagent.core.pauses import Answer, Pause
from worldagent.harness.journal import decision_of

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "count": {"type": "integer", "default": 1},
        "note": {"type": "string"},
    },
    "required": ["colour", "count"],
}


def question(schema: dict[str, Any]) -> Pause:
    now = datetime.now(UTC)
    return Pause(id="p", function="ask", kind="question", question="Which?", schema=schema, since=now)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ({}, {"colour": "red", "count": 1}),
        ({"count": 3, "note": "large"}, {"colour": "red", "count": 3, "note": "large"}),
    ],
)
def test_answer_that_leaves_fields_out_has_the_defaults_of_the_form(
    value: dict[str, Any], kept: dict[str, Any]
) -> None:
    for answer in (Answer(value), value):
        assert decision_of(question(FORM), answer) == {"kind": "answer", "value": kept}


def test_required_field_without_a_default_must_be_answered() -> None:
    with pytest.raises(AnswerInvalid, match="does not fit its schema"):
        decision_of(question(FORM | {"required": ["note"]}), Answer({}))
