"""What model services are reported to send is read, or refused with a right word."""

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from support.agents import scripted_agent, streamed
from support.raw_service import Raw, RawService, events, plain, raw_service, whole
from worldagent import WorldAgent, tool
from worldagent.agent.thread import Thread
from worldagent.core.errors import WorldAgentError
from worldagent.core.events import ReasoningDelta

QUIRKS: list[dict[str, Any]] = YAML(typ="safe").load(Path(__file__).parent / "quirks.yaml")
MODELS = {
    "chat": "openai/stub",
    "responses": "openai:stub",
    "anthropic": "anthropic/claude-stub",
    "gemini": "gemini/gemini-stub",
}
PATHS = {"gemini": "/v1beta"}


VENDORS = ("OPENAI", "ANTHROPIC", "GEMINI", "DEEPSEEK", "MISTRAL", "GROQ", "OPENROUTER", "MOONSHOT", "XAI")


def answer_of(quirk: dict[str, Any]) -> Raw:
    if "events" in quirk:
        return events(quirk["events"], done=quirk["form"] in ("chat", "responses"), named=quirk["form"] == "anthropic")
    if "raw" in quirk:
        return Raw(quirk["raw"].encode(), quirk.get("status", 200), quirk.get("kind", "application/json"))
    return whole(quirk["whole"], quirk.get("status", 200))


def agent_of(home: Path, models: Mapping[str, str], calls: list[Any]) -> WorldAgent:
    @tool(risk="read_only")
    def price(item: str) -> str:
        """Look up a price."""
        calls.append(["price", {"item": item}])
        return "20"

    @tool(risk="read_only")
    def clock() -> str:
        """Tell the time."""
        calls.append(["clock", {}])
        return "noon"

    lm = next(iter(models.values()))
    return scripted_agent(home, lm, models=models, tools=[price, clock], settings={"max_rounds": 2})


@pytest.mark.requirement("H3")
@pytest.mark.parametrize("form", MODELS)
async def test_what_services_send_is_read_or_refused(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    quirks = [quirk for quirk in QUIRKS if quirk["form"] == form]
    strings = [f"{quirk.get('model', MODELS[form])}-{number}" for number, quirk in enumerate(quirks)]
    calls: list[Any] = []
    wrong: list[str] = []
    async with raw_service() as service:
        for vendor in VENDORS:
            monkeypatch.setenv(f"{vendor}_API_KEY", "key-of-a-test")
            monkeypatch.setenv(f"{vendor}_API_BASE", service.url + PATHS.get(form, "/v1"))
        async with agent_of(tmp_path, {f"m{number}": string for number, string in enumerate(strings)}, calls) as agent:
            for number, quirk in enumerate(quirks):
                async for each in problems(agent.thread(f"t{number}"), f"m{number}", quirk, service, calls):
                    wrong.append(f"{quirk['report']} {quirk['said']} {each}")
    assert not wrong, "\n".join(wrong)


async def problems(
    thread: Thread, model: str, quirk: dict[str, Any], service: RawService, calls: list[Any]
) -> AsyncGenerator[str]:
    """What is wrong with the turn whose first answer is the quirk."""
    service.answers[:], service.requests[:], calls[:] = [answer_of(quirk), plain(quirk["form"], "Then so.")], [], []
    seen: list[Any] = []
    try:
        if "events" in quirk or quirk.get("stream"):
            turn, seen = await streamed(thread.stream("Go.", model=model))
        else:
            turn = await thread.converse("Go.", model=model)
    except WorldAgentError as failure:
        kind, _, words = quirk.get("error", "no error: ").partition(": ")
        if (
            type(failure).__name__ != kind
            or words not in str(failure)
            or len(service.requests) != quirk.get("requests", 1)
        ):
            yield f"{type(failure).__name__} after {len(service.requests)} requests: {failure}"
        return
    if "error" in quirk:
        yield f"no error but {turn.text!r}"
    reasoning = "".join(each.text for each in seen if isinstance(each, ReasoningDelta)).strip()
    words = ["tools" in each for each in service.requests] == [True, False]
    found: dict[str, Any] = {"calls": sorted(calls, key=str), "text": turn.text, "reasoning": reasoning, "words": words}
    wanted: dict[str, Any] = {"calls": sorted(quirk.get("calls", []), key=str), "text": quirk.get("text", "Then so.")}
    wanted |= {name: quirk[name] for name in ("reasoning", "words") if name in quirk}
    for name, value in wanted.items():
        if found[name] != value:
            yield f"{name}: {found[name]!r}"
    for name, tokens in quirk.get("usage", {}).items():
        if getattr(turn.usage, name) != tokens:
            yield f"{name}: {getattr(turn.usage, name)}"
    sent = service.requests[-1]
    messages = sent.get("messages") or sent.get("contents") or sent.get("input")
    if quirk.get("back", messages[0]) not in messages:
        yield f"sent back: {messages}"
