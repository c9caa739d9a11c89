"""How well the embedded model calls tools: well-formed answers, right tools, seconds (no network, no key).

Run `python benchmarks/embedded_tools.py [--quick] [--json]`. It prints a table and one JSON line, which README.md
explains.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Literal

import dspy
from dspy.lm15 import Message, Request, Response, TextPart, ToolResultPart, request_from_openai_chat
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it has no types

from worldagent.benchmarks._measure import Report, Row, main
from worldagent.harness import Function, tool
from worldagent.signatures import REPLY_DEMOS, Offer, OfferedTools
from worldagent.signatures.engines.connect import ModelConnection, connect_model


@tool
async def price(article: str) -> str:
    """Tell what an article costs."""
    return f"{article}: 12 euros"


@tool
async def weather(place: str) -> str:
    """Tell the weather at a place."""
    return f"{place}: rain, 9 degrees"


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def translate(text: str, language: Literal["French", "German", "Spanish"]) -> str:
    """Translate a text into another language."""
    return f"{text} ({language})"


@tool
async def remind(what: str, minutes: int) -> str:
    """Set a reminder."""
    return f"{what}, in {minutes} minutes"


TOOLS = (price, weather, add, translate, remind)
QUESTIONS = (
    ("What does a hat cost?", "price"),
    ("Is it raining in Lima?", "weather"),
    ("Add 3 and 4.", "add"),
    ("Translate 'good morning' into French.", "translate"),
    ("Remind me to call Ana in 20 minutes.", "remind"),
    ("Tell me a joke.", None),
    ("How much is a lamp?", "price"),
    ("How is the weather in Oslo?", "weather"),
    ("What is 17 plus 25?", "add"),
    ("How do you say 'thank you' in German?", "translate"),
    ("Set a reminder to drink water in 5 minutes.", "remind"),
    ("Hello, who are you?", None),
    ("What is the price of a coat?", "price"),
    ("What is the weather like in Paris?", "weather"),
    ("Please add 120 and 30.", "add"),
    ("Translate 'the house is red' to Spanish.", "translate"),
    ("Remind me in 10 minutes to open the window.", "remind"),
    ("Thanks!", None),
    ("What is the capital of France?", None),
    ("Why is the sky blue?", None),
)


def asked(connection: ModelConnection, question: str, tools: Sequence[Function]) -> Request:
    """Return a request as the conversation sends it."""
    offers = [Offer(name=each.name, description=each.description, params=each.input_schema) for each in tools]
    messages = [{"role": "system", "content": "You are a helpful assistant. Answer briefly."}]
    for demo in REPLY_DEMOS:
        messages += [{"role": "user", "content": demo["message"]}, {"role": "assistant", "content": demo["reply"]}]
    messages.append({"role": "user", "content": question})
    offered = [dict(each) for tools in OfferedTools.of(offers).inputs.values() for each in tools]
    return request_from_openai_chat({"model": connection.lm.model, "messages": messages, "tools": offered})


def after(request: Request, response: Response, result: str) -> Request:
    """Return the request with the call and its result added."""
    [call] = response.tool_calls
    part = ToolResultPart(id=call.id, content=(TextPart(text=result),), name=call.name)
    added = (response.message, Message(role="tool", parts=(part,)))
    return Request(
        model=request.model, messages=(*request.messages, *added), system=request.system, tools=request.tools
    )


def is_well_formed(response: Response, schemas: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether it is one call of an offered tool with valid arguments, or a text."""
    if not response.tool_calls:
        return bool((response.text or "").strip())
    return all(
        call.name in schemas and Draft202012Validator(schemas[call.name]).is_valid(dict(call.input))
        for call in response.tool_calls
    )


async def run(report: Report) -> None:
    """Ask all questions, in the order of README.md."""
    questions = QUESTIONS[:6] if report.quick else QUESTIONS
    schemas = {each.name: each.input_schema for each in TOOLS}
    sound = right = ended = called = 0
    seconds: list[float] = []
    connection = await connect_model("local")
    try:
        with dspy.context(disable_history=True, trace=None, callbacks=[], track_usage=False):
            for question, wanted in questions:
                request = asked(connection, question, TOOLS)
                began = time.perf_counter()
                response = await connection.lm.acall(request)
                seconds.append(time.perf_counter() - began)
                sound += is_well_formed(response, schemas)
                given = response.tool_calls[0].name if response.tool_calls else None
                right += given == wanted
                if not report.quiet:
                    shown = [dict(call.input) for call in response.tool_calls] or [response.text]
                    print(f"  {question:<46}{given or '-':<10} {shown[0]}", flush=True)
                if given is not None:
                    called += 1
                    answer = await connection.lm.acall(after(request, response, "It is done: 12."))
                    ended += not answer.tool_calls and bool((answer.text or "").strip())
                    if not report.quiet:
                        print(f"  {'':<46}{'':<10} {answer.text}", flush=True)
    finally:
        await connection.aclose()
    count = len(questions)
    rows = [
        Row(key="malformed", value=count - sound, unit="answers", aim=0, note=f"of {count}"),
        Row(key="right_tool", value=right, unit="answers", note=f"of {count}, including those without a right tool"),
        Row(key="unanswered_after_result", value=called - ended, unit="calls", aim=0, note=f"of {called}"),
        Row(key="answer_s", value=median(seconds), unit="s", note="median"),
        Row(key="answer_longest_s", value=max(seconds), unit="s"),
    ]
    report.section("Calls of the embedded model", rows)


if __name__ == "__main__":
    main("embedded_tools", "How well the embedded model calls tools.", run)
