"""Tools of services: how each service is told of them, and what is read of the answers that other projects recorded."""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from support.raw_service import Raw, ask, plain, raw_service, whole
from support.recorded import recorded_answers
from worldagent.core.errors import WorldAgentError
from worldagent.core.generation import SERVICE_TOOLS
from worldagent.signatures import Listener, Offer, OfferedTools, ServiceOffer
from worldagent.signatures.engines.services import service_tools

pytestmark = pytest.mark.requirement("H3")

MODELS = {"chat": "groq/stub", "gemini": "gemini/gemini-3-stub"}
EVERY = [ServiceOffer(name=name) for name in SERVICE_TOOLS]
LOOK = Offer(name="look", description="Looks.", params={"type": "object", "properties": {}})
MADE = re.compile(
    r'"tool_use_id": ?"srvtoolu|"executed_tools": ?\[\{"arguments"|"codeExecutionResult"|"toolResponse"'
    r'|"(?:web_search|file_search|code_interpreter)_call"[^{}]*"status": ?"completed"'
)


def sent_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """What a request says of tools of the service."""
    names = ("tools", "include", "toolConfig")
    return {name: body[name] for name in names if name in body}


@pytest.mark.parametrize(
    ("model", "own"),
    [
        (
            "openai:stub",
            {
                "tools": [
                    {"type": "web_search"},
                    {"type": "code_interpreter", "container": {"type": "auto"}},
                    {"type": "file_search"},
                ],
                "include": [
                    "web_search_call.action.sources",
                    "code_interpreter_call.outputs",
                    "file_search_call.results",
                ],
            },
        ),
        (
            "anthropic/claude-stub",
            {
                "tools": [
                    {"type": "web_search_20250305", "name": "web_search"},
                    {"type": "web_fetch_20250910", "name": "web_fetch"},
                    {"type": "code_execution_20250825", "name": "code_execution"},
                ]
            },
        ),
        (
            "gemini/gemini-2.5-stub",
            {"tools": [{"googleSearch": {}}, {"urlContext": {}}, {"codeExecution": {}}, {"fileSearch": {}}]},
        ),
        ("groq/stub", {"tools": [{"type": "browser_search"}, {"type": "code_interpreter"}]}),
        ("openrouter/stub", {"tools": [{"type": "openrouter:web_search"}, {"type": "openrouter:web_fetch"}]}),
        ("openai/stub", {}),
    ],
)
async def test_each_service_is_told_of_its_tools_in_its_own_words(model: str, own: dict[str, Any]) -> None:
    form = {"gemini": "gemini", "anthropic": "anthropic", "openai:stub": "responses"}.get(model.split("/")[0], "chat")
    async with raw_service(plain(form, "So.")) as service:
        await ask(service, model, {}, services=EVERY)
        assert sent_of(service.requests[0]) == own


async def test_options_go_to_the_service_and_choose_a_version() -> None:
    newer = {"type": "web_search_20260209", "max_uses": 3}
    offers = [ServiceOffer(name="web_search", options=newer), ServiceOffer(name="web_fetch")]
    async with raw_service(plain("anthropic", "So.")) as service:
        await ask(service, "anthropic", {}, services=offers)
        assert service.requests[0]["tools"][0] == {"name": "web_search", **newer}
        assert service.headers[0]["anthropic-beta"] == "web-fetch-2025-09-10"


async def test_gemini_takes_functions_beside_its_own_tools_from_version_3_on() -> None:
    for version, native in (("gemini-3-pro", True), ("gemini-2.5-pro", False)):
        async with raw_service(plain("gemini", "So.")) as service:
            await ask(service, f"gemini/{version}", OfferedTools.of([LOOK]).inputs, services=EVERY[:1])
            body = service.requests[0]
            assert ("functionDeclarations" in body["tools"][0]) == native
            assert body["tools"][-1] == {"googleSearch": {}}
            assert body.get("toolConfig", {}) == ({"includeServerSideToolInvocations": True} if native else {})
            assert ("- look: Looks." in json.dumps(body)) != native


def test_clouds_have_fewer_tools_than_the_makers_of_their_models() -> None:
    assert service_tools("messages", "vertex-anthropic") == {"web_search"}
    assert service_tools("messages", "bedrock-anthropic") == frozenset()
    assert "file_search" not in service_tools("gemini", "vertex")
    assert service_tools("chat", "openai-chat") == frozenset()


async def test_what_services_did_is_read_of_recorded_answers() -> None:
    answers = [each for project in recorded_answers().values() for each in project if MADE.search(each["body"])]
    counts: Counter[tuple[str, str]] = Counter()
    for answer in answers:
        model = MODELS.get(answer["form"]) or str(answer["form"])
        found: list[Mapping[str, Any]] = []
        async with raw_service(Raw(answer["body"].encode(), answer["status"], answer["kind"])) as service:
            with contextlib.suppress(WorldAgentError):  # some are not answers of a conversation
                await ask(service, model, {}, services=EVERY, listener=Listener(served=found.extend))
        assert found, answer["cassette"]
        assert "encrypted_content" not in json.dumps(found)
        if answer["form"] == "anthropic":
            assert len(found) == len(set(re.findall(r'"tool_use_id": ?"(srvtoolu_\w+)"', answer["body"])))
        counts.update((answer["form"], each["tool"]) for each in found)
    assert len(answers) >= 30
    assert all(counts[form, tool] for form, tool in WANTED), counts


WANTED = (
    *(("anthropic", name) for name in ("web_search", "web_fetch", "code_execution")),
    *(("responses", name) for name in ("web_search", "code_execution", "file_search")),
    *(("gemini", name) for name in ("web_search", "code_execution")),
    ("chat", "web_search"),
)


async def test_a_search_that_openrouter_counts_is_one_with_the_pages_that_are_cited() -> None:
    page = {"url": "https://maps.test/harbour", "title": "The harbour"}
    message = {
        "role": "assistant",
        "content": "Nine metres.",
        "annotations": [{"type": "url_citation", "url_citation": {**page, "start_index": 0}}],
    }
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "server_tool_use": {"web_search_requests": 1}}
    answer = whole({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage})
    found: list[Mapping[str, Any]] = []
    async with raw_service(answer) as service:
        await ask(service, "openrouter/stub", {}, services=EVERY[:1], listener=Listener(served=found.extend))
    assert found == [{"tool": "web_search", "arguments": {}, "result": {"cited": [page]}, "failed": False}]


async def test_what_a_service_says_of_its_tools_is_bounded_and_can_be_stored() -> None:
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "x" * 9000, "input": {"code": "a" * 90_000}}
    ran = {"stdout": "broken \ud800 text", "stderr": "b" * 90_000, "deep": json.loads("[" * 40 + "]" * 40)}
    result = {"type": "bash_tool_result", "tool_use_id": "srvtoolu_1", "content": ran}
    blocks = [use, result, *[{**result, "tool_use_id": f"srvtoolu_{place}"} for place in range(2, 3000)]]
    answer = {"type": "message", "content": [*blocks[:2], {"type": "text", "text": "So."}], "stop_reason": "end_turn"}
    many = {**answer, "content": [{**each, "content": None} for each in blocks[2:]] + [{"type": "text", "text": "So."}]}
    found: list[Mapping[str, Any]] = []
    async with raw_service(whole(answer), whole(many)) as service:
        for _ in range(2):
            await ask(service, "anthropic", {}, services=EVERY, listener=Listener(served=found.extend))
    json.dumps(found, ensure_ascii=False).encode()
    assert found[0]["tool"] == "service_tool"
    assert max(len(json.dumps(each)) for each in found) < 60_000
    assert len(found) == 1 + 1000
