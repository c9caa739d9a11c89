"""Turns of ten steps against services that refuse what the real ones refuse."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.agents import approving, scripted_agent, streamed
from support.raw_service import Raw, events, raw_service, whole
from worldagent import Approve, Policy, Role, tool
from worldagent.agent.thread import Thread

STEPS = 10
Problems = Iterator[str]
"""Why a service would refuse a request, in its words."""


# --- what services refuse ---------------------------------------------------------------------------------------------


def chat_problems(body: Mapping[str, Any]) -> Problems:
    """OpenAI: each call has a result, and each result a call, directly behind; no message is empty."""
    open_calls: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                yield "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'"
            else:
                open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            yield f"an assistant message with 'tool_calls' must be followed by tool messages: {open_calls}"
        open_calls = [call["id"] for call in message.get("tool_calls") or ()]
        if not message.get("content") and not open_calls:
            yield "expected a string with minimum length 1"
        for call in message.get("tool_calls") or ():
            json.loads(call["function"]["arguments"])


def deepseek_problems(body: Mapping[str, Any]) -> Problems:
    """DeepSeek: reasoning goes back beside calls."""
    yield from chat_problems(body)
    for message in body["messages"]:
        if message.get("tool_calls") and message.get("reasoning_content") != "I look.":
            yield "The `reasoning_content` in the thinking mode must be passed back to the API."


def signed_problems(body: Mapping[str, Any]) -> Problems:
    """Gemini at OpenAI's protocol: each call has its signature."""
    yield from chat_problems(body)
    for message in body["messages"]:
        for call in message.get("tool_calls") or ():
            if call.get("extra_content") != {"google": {"thought_signature": f"SIG-{call['id']}"}}:
                yield "Function call is missing a thought_signature in functionCall parts."


def openrouter_problems(body: Mapping[str, Any]) -> Problems:
    """OpenRouter: the details of reasoning are those that it gave, in their order."""
    yield from chat_problems(body)
    for message in body["messages"]:
        if message.get("tool_calls") and [each.get("type") for each in message.get("reasoning_details", [])] != [
            "reasoning.text",
            "reasoning.encrypted",
        ]:
            yield "reasoning_details must be passed back unmodified"


def anthropic_problems(body: Mapping[str, Any]) -> Problems:
    """Anthropic: no empty texts, results directly behind calls, thinking with its signature before them."""
    before: Sequence[Mapping[str, Any]] = ()
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if any(block["type"] == "text" and not block["text"] for block in blocks):
            yield "messages: text content blocks must be non-empty"
        calls = [block["id"] for block in before if block["type"] == "tool_use"]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(calls) != sorted(results):
            yield f"`tool_use` ids were found without `tool_result` blocks immediately after: {calls} {results}"
        thought = blocks[0] == {"type": "thinking", "thinking": "", "signature": "SIG"}
        if any(block["type"] == "tool_use" for block in blocks) and not thought:
            yield "messages: Expected `thinking` or `redacted_thinking`, but found `tool_use`"
        before = blocks if message["role"] == "assistant" else ()
    for each in body.get("tools", ()):
        if {"oneOf", "anyOf", "allOf"} & each["input_schema"].keys():
            yield "input_schema does not support oneOf, allOf, or anyOf at the top level"


def gemini_problems(body: Mapping[str, Any]) -> Problems:
    """Gemini: as many results as calls, and the signature of the first call of each step."""
    calls: list[str] = []
    for content in body["contents"]:
        results = [part["functionResponse"]["name"] for part in content["parts"] if "functionResponse" in part]
        if results != calls:
            yield "the number of function response parts must equal the number of function call parts"
        signed = [part for part in content["parts"] if "functionCall" in part]
        calls = [part["functionCall"]["name"] for part in signed]
        if signed and signed[0].get("thoughtSignature") != "SIG":
            yield "Function call is missing a thought_signature in functionCall parts."
    for each in body.get("tools", ()):
        for declaration in each["functionDeclarations"]:
            if "additionalProperties" in declaration.get("parameters", {}):
                yield "Unknown name \"additionalProperties\" at 'tools[0].function_declarations[0].parameters'"


def responses_problems(body: Mapping[str, Any]) -> Problems:
    """OpenAI's Responses: each output has its call, and each call the reasoning before it."""
    seen: set[str] = set()
    before: Mapping[str, Any] = {}
    for item in body["input"]:
        if item.get("type") == "function_call":
            seen.add(item["call_id"])
            if before.get("type") != "reasoning":
                yield "Item 'fc' of type 'function_call' was provided without its required 'reasoning' item"
        if item.get("type") == "function_call_output" and item["call_id"] not in seen:
            yield "No tool call found for function call output"
        before = item


# --- what services answer ---------------------------------------------------------------------------------------------


def name_of(step: int) -> str:
    """The tool that a step calls. One of them needs an approval."""
    return "sign" if step == STEPS // 2 else "look"


def chat_step(step: int, **call: Any) -> dict[str, Any]:
    function = {"name": name_of(step), "arguments": json.dumps({"place": step})}
    return {"tool_calls": [{"index": 0, "id": f"c{step}", "type": "function", "function": function, **call}]}


def chat(body: Mapping[str, Any], step: int, **further: Any) -> Raw:
    last = step == STEPS
    call = further.pop("call", {})
    message = {"content": "Found."} if last else {"content": None, **chat_step(step, **call)}
    ending = {"index": 0, "finish_reason": "stop" if last else "tool_calls"}
    if not body.get("stream"):
        return whole({"choices": [{**ending, "message": {"role": "assistant", **message, **further}}]})
    pieces = [{name: value} for name, value in {**further, **message}.items() if value is not None]
    return events(
        [*({"choices": [{"index": 0, "delta": each}]} for each in pieces), {"choices": [{**ending, "delta": {}}]}]
    )


def deepseek(body: Mapping[str, Any], step: int) -> Raw:
    return chat(body, step, reasoning_content="I look.")


def signed(body: Mapping[str, Any], step: int) -> Raw:
    return chat(body, step, call={"extra_content": {"google": {"thought_signature": f"SIG-c{step}"}}})


def openrouter(body: Mapping[str, Any], step: int) -> Raw:
    details = [
        {"type": "reasoning.text", "text": "I look.", "index": 0},
        {"type": "reasoning.encrypted", "data": "ENC", "index": 1},
    ]
    return chat(body, step, reasoning="I look.", reasoning_details=details)


_OPENED: dict[str, dict[str, Any]] = {
    "thinking": {"signature": ""},
    "tool_use": {"input": {}},
    "text": {"text": ""},
}


def anthropic(body: Mapping[str, Any], step: int) -> Raw:
    thinking: dict[str, Any] = {"type": "thinking", "thinking": "", "signature": "SIG"}
    call: dict[str, Any] = {"type": "tool_use", "id": f"c{step}", "name": name_of(step), "input": {"place": step}}
    blocks: list[dict[str, Any]] = [{"type": "text", "text": "Found."}] if step == STEPS else [thinking, call]
    reason = "end_turn" if step == STEPS else "tool_use"
    if not body.get("stream"):
        return whole({"type": "message", "id": "m", "model": "m", "content": blocks, "stop_reason": reason})
    found: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "m", "model": "m"}}]
    for index, block in enumerate(blocks):
        kind = str(block["type"])
        opened = _OPENED[kind]
        delta = {
            "thinking": {"type": "signature_delta", "signature": "SIG"},
            "tool_use": {"type": "input_json_delta", "partial_json": json.dumps(block.get("input"))},
            "text": {"type": "text_delta", "text": block.get("text")},
        }[kind]
        found.append({"type": "content_block_start", "index": index, "content_block": {**block, **opened}})
        found.append({"type": "content_block_delta", "index": index, "delta": delta})
        found.append({"type": "content_block_stop", "index": index})
    ended = [{"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"}]
    return events([*found, *ended], done=False, named=True)


def gemini(body: Mapping[str, Any], step: int) -> Raw:
    calls = [
        {"functionCall": {"name": name_of(step), "args": {"place": step}}, "thoughtSignature": "SIG"},
        {"functionCall": {"name": "look", "args": {"place": -step}}},
    ]
    parts = [{"text": "Found."}] if step == STEPS else calls
    answer = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}
    return events([answer], done=False)


def responses(body: Mapping[str, Any], step: int) -> Raw:
    call = {"type": "function_call", "id": f"f{step}", "call_id": f"c{step}", "name": name_of(step)}
    done = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "Found."}]}
    thought = {"type": "reasoning", "id": f"r{step}", "summary": [], "encrypted_content": "ENC"}
    items = [done] if step == STEPS else [thought, {**call, "arguments": json.dumps({"place": step})}]
    answer = {"id": "r", "object": "response", "model": "m", "status": "completed", "output": items}
    if not body.get("stream"):
        return whole(answer)
    found = [{"type": "response.output_item.done", "output_index": at, "item": each} for at, each in enumerate(items)]
    created = {"type": "response.created", "response": {"id": "r", "model": "m"}}
    return events([created, *found, {"type": "response.completed", "response": {**answer, "output": []}}], named=True)


Form = tuple[str, str, Callable[[Mapping[str, Any]], Problems], Callable[[Mapping[str, Any], int], Raw]]
FORMS: dict[str, Form] = {
    "chat": ("openai/stub", "/v1", chat_problems, chat),
    "DeepSeek": ("deepseek/deepseek-chat", "/v1", deepseek_problems, deepseek),
    "DeepSeek elsewhere": ("openai/deepseek", "/v1", deepseek_problems, deepseek),
    "signed calls": ("openai/gemini-3", "/v1", signed_problems, signed),
    "OpenRouter": ("openrouter/x/y", "/v1", openrouter_problems, openrouter),
    "Responses": ("openai:stub", "/v1", responses_problems, responses),
    "Anthropic": ("anthropic/claude-stub", "/v1", anthropic_problems, anthropic),
    "Gemini": ("gemini/gemini-3-stub", "/v1beta", gemini_problems, gemini),
}


@pytest.fixture(autouse=True)
def _keyed(monkeypatch: pytest.MonkeyPatch) -> None:
    for vendor in ("OPENAI", "ANTHROPIC", "GEMINI", "DEEPSEEK", "OPENROUTER"):
        monkeypatch.setenv(f"{vendor}_API_KEY", "key-of-a-test")


@pytest.mark.requirement("H3")
@pytest.mark.parametrize("paused", [False, True], ids=["", "paused"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("form", FORMS)
async def test_no_request_of_a_turn_of_ten_steps_is_refused(
    tmp_path: Path, form: str, stream: bool, paused: bool
) -> None:
    """A step that pauses, and those before it, go back in words in the next process."""
    model, path, problems, answered = FORMS[form]
    refused: list[str] = []
    asked = 0

    def answer(body: Mapping[str, Any]) -> Raw:
        nonlocal asked
        asked += 1
        found = [*problems(body)]
        refused.extend(found)
        return whole({"error": {"message": found[0]}}, 400) if found else answered(body, asked)

    @tool(risk="read_only")
    def look(place: int) -> str:
        """Look at a place."""
        return f"nothing at {place}"

    @tool(risk="write")
    def sign(place: int) -> str:
        """Sign for a place."""
        return f"signed for {place}"

    async def gone(thread: Thread) -> Any:
        return (
            (await streamed(thread.stream("Go.", role=role)))[0] if stream else await thread.converse("Go.", role=role)
        )

    role = Role("scout", "Walk slowly and look twice.")
    async with raw_service(*[answer] * (STEPS + 5)) as service:
        settings = {"api_base": service.url + path, "max_rounds": STEPS + 2}
        more: Any = {"tools": [look, sign], "settings": settings}
        more["policy"] = Policy(rules=() if paused else (approving("sign"),))
        async with scripted_agent(tmp_path, model, **more) as agent:
            turn = await gone(agent.thread("t"))
        assert bool(turn.pauses) == paused
        if paused:
            async with scripted_agent(tmp_path, model, **more) as agent:
                turn = await agent.thread("t").resume({pause.id: Approve() for pause in turn.pauses}, role=role)
    assert refused == []
    assert (turn.status, turn.text, asked) == ("done", "Found.", STEPS)
