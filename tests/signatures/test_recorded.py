"""Answers that other projects recorded are read as their tests expect, or differently for a reason that is given."""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from support.raw_service import FORMS, Raw, RawService, plain, raw_service
from support.recorded import recorded_answers
from worldagent.core.errors import WorldAgentError
from worldagent.core.generation import ModelUsage
from worldagent.signatures import (
    CallMade,
    Listener,
    ModelCaller,
    ModelOptions,
    Offer,
    OfferedTools,
    Predictor,
    StepMade,
    open_model,
)
from worldagent.signatures.converse import converse_signature

pytestmark = pytest.mark.requirement("H3")

# Services that count or write something in another way than the others of their form.
OWN = {("chat", name): (f"{name}/stub", "/v1") for name in ("deepseek", "groq", "mistral", "openrouter", "xai", "zai")}
ANSWERS = recorded_answers()
SEARCH = Offer(name="search", description="Searches.", params={"type": "object", "properties": {}})
INPUTS = {"history": None, "message": "Go.", **OfferedTools.of([SEARCH]).inputs}


def test_the_recorded_answers_are_of_many_projects_services_and_kinds() -> None:
    answers = [answer for project in ANSWERS.values() for answer in project]
    kinds = Counter(kind for answer in answers for kind in answer["kinds"])
    assert len(answers) >= 150
    assert len(ANSWERS) >= 3
    assert len({answer["service"] for answer in answers}) >= 6
    assert {answer["form"] for answer in answers} == FORMS.keys()
    for kind in ("streamed", "tools", "parallel", "thinking", "images", "structured", "errors"):
        assert kinds[kind] >= 5, kind
    for answer in answers:
        assert all((*answer.get("differs", {}).values(), answer.get("instead", {}).get("why", "none")))


@pytest.mark.parametrize("project", ANSWERS)
async def test_recorded_answers_are_read_as_their_projects_read_them(
    project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XAI_API_KEY", "key-of-a-test")
    wrong: dict[str, Any] = {}
    predictor = Predictor(converse_signature(None))
    async with raw_service() as service:
        for number, answer in enumerate(ANSWERS[project]):
            async with contextlib.aclosing(await opened(answer, service)) as caller:
                found = await read(predictor, caller, service, answer)
            if differences := dict(compared(answer, found)):
                wrong[f"{number} {answer['cassette']}"] = differences
    assert wrong == {}


async def test_recorded_calls_go_back_as_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XAI_API_KEY", "key-of-a-test")
    answers = [each for project in ANSWERS.values() for each in project if each["expect"].get("calls")]
    whole = [each for each in answers if not each["stream"] and each["body"].startswith("{") and "differs" not in each]
    assert len(whole) >= 50
    predictor = Predictor(converse_signature(None))
    async with raw_service() as service:
        for answer in whole:
            service.answers[:] = [Raw(answer["body"].encode()), plain(answer["form"], "Then so.")]
            async with contextlib.aclosing(await opened(answer, service)) as caller:
                first = await predictor(INPUTS, caller)
                calls = first.fields["calls"]
                made = [CallMade(tool=each.tool, arguments=each.arguments, result="So.") for each in calls]
                await predictor(INPUTS, caller, steps=[StepMade(calls=made, message=first.message)])
            sent = service.requests[-1]
            messages = sent.get("messages") or sent.get("contents") or sent["input"]
            missing = [each for each in parts_of(answer["form"], json.loads(answer["body"])) if each not in messages]
            assert missing == [], answer["cassette"]


def parts_of(form: str, body: Mapping[str, Any]) -> list[Any]:
    """What a request must have of an answer: its message, or its items."""
    match form:
        case "anthropic":
            content = [each for each in body["content"] if each.get("type") != "text" or each["text"]]
            return [{"role": "assistant", "content": content}]
        case "gemini":
            return [body["candidates"][0]["content"]]
        case "responses":
            return list(body["output"])
        case _:
            message = {name: value for name, value in body["choices"][0]["message"].items() if value not in (None, [])}
            calls = [{"type": "function", **each} for each in message["tool_calls"]]
            calls = [{name: value for name, value in each.items() if name != "index"} for each in calls]
            return [{**message, "content": message.get("content") or None, "tool_calls": calls}]


async def opened(answer: Mapping[str, Any], service: RawService) -> ModelCaller:
    """The model of the service that gave an answer, at the address of another one."""
    model, path = OWN.get((answer["form"], answer["service"]), FORMS[answer["form"]])
    return await open_model(model, api_base=service.url + path, options=ModelOptions(attempts=1))


async def read(
    predictor: Predictor, caller: ModelCaller, service: RawService, answer: Mapping[str, Any]
) -> dict[str, Any]:
    """What a model call makes of a recorded answer."""
    # A refusal can be of the form of the request, which is asked again in another one.
    service.answers[:] = [Raw(answer["body"].encode(), answer["status"], answer["kind"])] * 4
    service.requests.clear()
    usage: list[ModelUsage] = []
    texts: list[str] = []
    thoughts: list[str] = []
    listens: dict[str, Any] = {"field": "reply", "emit": texts.append, "reason": thoughts.append}
    streams = answer["stream"] or answer["expect"].get("reasoning")
    listener = Listener(
        usage=lambda used, **_: usage.append(used), withdraw=texts.clear, **(listens if streams else {})
    )
    try:
        result = await predictor(INPUTS, caller, listener=listener)
    except WorldAgentError as error:
        return {"error": type(error).__name__}
    found: dict[str, Any] = {
        "text": result.fields["reply"],
        "has": result.fields["reply"],
        "json": result.fields["reply"],
        "calls": [[call.tool, call.arguments] for call in result.fields["calls"]],
    }
    if streams:
        found["reasoning"] = "".join(thoughts)
        if "".join(texts) != found["text"]:
            found["streamed"] = "".join(texts)
    return {**found, "usage": usage[-1]}


def compared(answer: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What of an answer was read in another way than expected, or than explained."""
    expected, differs = answer["expect"], answer.get("differs", {})
    if "instead" in answer:
        expected = {"error": answer["instead"]["error"]}
    if found.get("error") != expected.get("error"):
        yield "error", found.get("error")
        return
    for name, value in expected.items():
        if name == "usage" and "usage" in found:
            for kind, tokens in value.items():
                if (getattr(found["usage"], kind) == tokens) == (kind in differs):
                    yield kind, (tokens, getattr(found["usage"], kind))
        elif (fits(name, value, found.get(name))) == (name in differs):
            yield name, (value, found.get(name, found))
    if "streamed" in found:
        yield "streamed", found["streamed"]


def fits(name: str, expected: Any, found: Any) -> bool:
    """Whether a value is as expected: a text with some words, or one that is JSON, or the value itself."""
    match name:
        case "has":
            return all(word in str(found) for word in expected)
        case "json":
            return isinstance(found, str) and bool(json.loads(found) == expected)
        case _:
            return bool(found == expected or (isinstance(expected, str) and expected.strip() == str(found).strip()))
