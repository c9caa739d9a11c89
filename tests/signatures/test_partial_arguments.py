"""Arguments that Gemini streams in parts are those of one call, and a part that does not fit makes no other call."""

from typing import Any

import pytest

from support.raw_service import ask, events, raw_service
from worldagent.core.errors import OutputInvalid
from worldagent.signatures import Listener, ModelOptions, Offer, OfferedTools

pytestmark = pytest.mark.requirement("H3")

SEARCH = Offer(name="search", description="", params={"type": "object", "properties": {}})
INPUTS = {"history": None, "message": "Go.", **OfferedTools.of([SEARCH]).inputs}


async def calls_of(*parts: dict[str, Any], ended: str = "STOP") -> Any:
    """The calls of an answer whose arguments came in these parts."""
    pieces: list[Any] = [{"functionCall": {"name": "search", "partialArgs": parts[:1], "willContinue": True}}]
    pieces += [{"functionCall": {"partialArgs": [part], "willContinue": True}} for part in parts[1:]]
    contents: list[dict[str, Any]] = [
        {"candidates": [{"content": {"role": "model", "parts": [piece]}}]} for piece in pieces
    ]
    contents[-1]["candidates"][0]["finishReason"] = ended
    async with raw_service(events(contents, done=False)) as service:
        options = ModelOptions(attempts=1, tools="native")
        answer = await ask(service, "gemini", INPUTS, options=options, listener=Listener(field="reply"))
    return [(each.tool, each.arguments) for each in answer.fields["calls"]]


def part(path: str, **value: Any) -> dict[str, Any]:
    return {"jsonPath": path, **value}


async def test_parts_are_put_at_their_paths() -> None:
    found = await calls_of(
        part("$.a.b[0].c", stringValue="x", willContinue=True),
        part("$.a.b[0].c", stringValue="y"),
        part("$.a.b[1].c", numberValue=2),
        part('$[\'a name\']["it\\"s"]', boolValue=False),
        part("$.none", nullValue="NULL_VALUE"),
    )
    arguments = {"a": {"b": [{"c": "xy"}, {"c": 2}]}, "a name": {'it"s': False}, "none": None}
    assert found == [("search", arguments)]


@pytest.mark.parametrize("path", ["$..a", "$[0]", "a", "$", "$.a[x]", "$.a[99999999]", "$.x.y", "$.x[0]", 5])
async def test_a_part_whose_path_does_not_fit_is_no_call(path: Any) -> None:
    with pytest.raises(OutputInvalid, match="could not read"):
        await calls_of(part("$.x", numberValue=1), part(path, stringValue="x"))


async def test_arguments_that_were_cut_off_are_no_call() -> None:
    with pytest.raises(OutputInvalid):
        await calls_of(part("$.x", stringValue="all but ", willContinue=True), ended="MAX_TOKENS")


async def test_arguments_in_parts_have_the_limit_of_an_answer() -> None:
    with pytest.raises(OutputInvalid, match="too long"):
        await calls_of(*[part("$.x", stringValue="x" * 50_000, willContinue=True)] * 3)
