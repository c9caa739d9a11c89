"""Params and results that a JSON Schema declares: what fits, validation errors, hostile schemas."""

import asyncio
import time
from typing import Any

import pytest

from worldagent.core.errors import ParamsInvalid, ResultInvalid
from worldagent.core.validation import (
    declaration,
    json_of,
    json_of_value,
    read_model,
    read_value,
    validate_model,
    validate_value,
)
from worldagent.harness.schema import params_of, result_of

SCHEMA: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "required": ["path"],
    "properties": {
        "path": {"type": "string", "minLength": 1},
        "sort-by": {"enum": ["name", "size"]},
        "model_config": {"type": "integer"},
        "tree": {"$ref": "#/definitions/tree"},
    },
    "definitions": {"tree": {"type": "object", "additionalProperties": {"$ref": "#/definitions/tree"}}},
    "additionalProperties": False,
}
GIVEN = {"path": "a", "sort-by": "size", "model_config": 1, "tree": {"b": {"c": {}}}}
SECRET = "velvet harbour"


def refusal(given: Any) -> str:
    with pytest.raises(ParamsInvalid) as caught:
        validate_model(params_of("list", SCHEMA), given, what="params of function 'list'", error=ParamsInvalid)
    return str(caught.value)


@pytest.mark.requirement("H2")
def test_what_a_schema_allows_comes_out_as_it_went_in() -> None:
    model = params_of("list", SCHEMA)
    for read in (validate_model, read_model):
        taken = read(model, GIVEN, what="params", error=ParamsInvalid)
        assert taken.model_extra == GIVEN
        assert taken.model_dump(mode="json") == json_of(taken, what="params", error=ParamsInvalid) == GIVEN


@pytest.mark.requirement("H2")
@pytest.mark.parametrize(
    ("part", "fits", "refused"),
    [
        ({"type": "string", "nullable": True}, [None, "a"], [1]),
        ({"type": "string", "nullable": False}, ["a"], [None]),
        ({"type": "string", "enum": ["a"], "nullable": True}, [None, "a"], ["b"]),
        ({"$ref": "#/components/schemas/Cup", "nullable": True}, [None, {"n": 1}, {"n": None}], [{"n": "1"}, 1]),
        ({"allOf": [{"$ref": "#/components/schemas/Cup"}], "nullable": True}, [None, {}], [[]]),
        ({"type": "array", "items": {"type": "integer", "nullable": True}}, [[1, None]], [None, ["a"]]),
        ({"minimum": 1, "exclusiveMinimum": True}, [1.5, 2], [1, 0]),
        ({"maximum": 1, "exclusiveMaximum": False}, [1], [2]),
        ({"exclusiveMaximum": 3}, [2], [3]),
    ],
)
def test_openapi_words_of_a_schema_are_read(part: Any, fits: list[Any], refused: list[Any]) -> None:
    cup = {"type": "object", "properties": {"n": {"type": "integer", "nullable": True}}}
    schema = {"type": "object", "properties": {"x": part}, "components": {"schemas": {"Cup": cup}}}
    model = params_of("drink", schema)
    assert model.model_json_schema() == schema
    for value in fits:
        assert validate_model(model, {"x": value}, what="params", error=ParamsInvalid).model_extra == {"x": value}
    for value in refused:
        with pytest.raises(ParamsInvalid):
            validate_model(model, {"x": value}, what="params", error=ParamsInvalid)


@pytest.mark.requirement("H2")
def test_a_bound_of_an_old_draft_is_read_as_that_draft_writes_it() -> None:
    draft = {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True}
    adapter = result_of("count", draft)
    assert validate_value(adapter, 2, what="result", error=ResultInvalid) == 2
    with pytest.raises(ResultInvalid):
        validate_value(adapter, 1, what="result", error=ResultInvalid)


def test_another_schema_is_another_declaration() -> None:
    changed = SCHEMA | {"required": []}
    one = declaration(params_of("list", SCHEMA), result_of("list", SCHEMA))
    assert one == declaration(params_of("list", SCHEMA), result_of("list", SCHEMA))
    assert one != declaration(params_of("list", changed), result_of("list", SCHEMA))
    assert one != declaration(params_of("list", SCHEMA), result_of("list", changed))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "path: is required"),
        ({"path": "a", "sort-by": SECRET}, 'sort-by: should be "name", "size"'),
        ({"path": "a", SECRET: 1}, "...: is not declared"),
        ({"path": "a", "tree": {"b": {"c": SECRET}}}, "tree.b.c: should be object"),
        ([SECRET], "value: should be object"),
    ],
)
def test_a_refusal_names_the_field_and_no_value(given: Any, told: str) -> None:
    said = refusal(given)
    assert f"do not fit: {told};" in said
    assert said.endswith("the fields are: path, sort-by, model_config, tree")
    assert SECRET not in said


def test_a_result_is_checked_and_read_again() -> None:
    result = result_of("count", {"type": "array", "items": {"type": "integer"}, "uniqueItems": True})
    assert validate_value(result, [1, 2], what="it", error=ResultInvalid) == [1, 2]
    assert json_of_value(result, [1, 2], what="it", error=ResultInvalid) == [1, 2]
    assert read_value(result, [1, 2], what="it", error=ResultInvalid) == [1, 2]
    for wrong in ([1, 1.0], [1, SECRET], {"a": SECRET}, None):
        with pytest.raises(ResultInvalid) as caught:
            validate_value(result, wrong, what="it", error=ResultInvalid)
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        ({"pattern": "^(a+)+$"}, "a" * 60 + "!", False),
        ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, {"a" * 60 + "!": 1}, False),
        (
            {"$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)} | {"d40": {}}}
            | {"$ref": "#/$defs/d0"},
            1,
            False,
        ),
        ({"uniqueItems": True}, [{"a": number} for number in range(20_000)], True),
        ({"items": {"anyOf": [{"const": number} for number in range(1000)]}}, [-1] * 10_000, False),
    ],
)
def test_a_hostile_schema_takes_no_more_than_a_bounded_time(schema: Any, value: Any, fits: bool) -> None:
    result, began = result_of("x", schema), time.process_time()
    try:
        validate_value(result, value, what="it", error=ResultInvalid)
        taken = True
    except ResultInvalid:
        taken = False
    assert taken is fits
    assert time.process_time() - began < 10


async def test_checks_that_run_side_by_side_count_their_own_steps() -> None:
    result = result_of("x", {"items": {"type": "integer"}})

    async def check() -> int:
        return len(validate_value(result, list(range(8_000)), what="it", error=ResultInvalid))

    assert await asyncio.gather(*(check() for _ in range(8))) == [8_000] * 8
