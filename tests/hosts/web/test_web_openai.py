"""OpenAI's chat completions: the real client of OpenAI against the web app."""

import asyncio
import base64
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from support.agents import answering, scripted_agent
from support.web import by_header, client_of, served
from worldagent import tool
from worldagent.hosts.web import Grant, WebApp
from worldagent.testing import ScriptedLM

pytestmark = pytest.mark.requirement("T4", "T10")

THREAD = "X-Worldagent-Thread"
ON_MAIN = {THREAD: "main"}
HELLO: Any = [{"role": "user", "content": "Hello."}]
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@tool(risk="write")
def buy(item: str) -> str:
    """Buy an item."""
    return f"one {item} is on its way"


def buying() -> ScriptedLM:
    """A model that wants to buy a hat, and then says what came of it."""
    return ScriptedLM(
        [{"reply": "", "calls": [{"tool": "buy", "arguments": {"item": "hat"}}]}, {"reply": "A hat is on its way."}]
    )


class Prompts:
    """A model that answers `Fine.` and keeps what it was asked."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.lm = ScriptedLM(self._reply)

    def _reply(self, call: Any) -> dict[str, str]:
        self.seen.append(str(call.text))
        return {"reply": "Fine."}


@asynccontextmanager
async def completing(home: Path, lm: Any, **more: Any) -> AsyncGenerator[openai.AsyncOpenAI]:
    """A served app, and OpenAI's client of it, which is logged in as `ana`."""
    agent = scripted_agent(home, lm, **more.pop("agent", {}))
    more.setdefault("login", by_header)
    async with served(WebApp(agent, **more)) as url, of_user(url) as client:
        yield client


def of_user(url: str, user: str = "ana") -> openai.AsyncOpenAI:
    """OpenAI's client of a person."""
    return openai.AsyncOpenAI(api_key="none", base_url=f"{url}/v1", default_headers={"x-user": user}, timeout=60)


def web_client(client: openai.AsyncOpenAI, user: str = "ana") -> httpx2.AsyncClient:
    """A client of the other paths of the same app."""
    return client_of(str(client.base_url).removesuffix("/v1/"), user)


async def say(client: openai.AsyncOpenAI, messages: Any = HELLO, thread: str | None = "main", **more: Any) -> Any:
    """Ask for a completion on a thread."""
    headers = {**({THREAD: thread} if thread else {}), **more.pop("headers", {})}
    return await client.chat.completions.create(
        model=more.pop("model", "novel"), messages=messages, extra_headers=headers, **more
    )


async def refused(client: openai.AsyncOpenAI, kind: type[openai.APIError], *given: Any, **more: Any) -> Any:
    """The error of a completion that is refused."""
    with pytest.raises(kind) as caught:
        await say(client, *given, **more)
    return caught.value


async def history(client: openai.AsyncOpenAI, thread: str = "main") -> list[str]:
    """The texts of a thread."""
    async with web_client(client) as web:
        messages = (await web.get(f"/threads/{thread}/messages")).json()["messages"]
    return [each["body"]["text"] for each in messages if each["body"].get("text")]


async def test_a_completion_is_a_turn_of_the_thread_in_the_header(tmp_path: Path) -> None:
    async with completing(tmp_path, answering("Fine, thank you.")) as client:
        done = await say(client, [{"role": "user", "content": "Earlier."}, {"role": "assistant"}, *HELLO])
        choice = done.choices[0]
        assert [choice.message.role, choice.message.content, choice.finish_reason, done.model] == [
            "assistant", "Fine, thank you.", "stop", "novel",
        ]  # fmt: skip
        assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens > 0
        assert await history(client) == ["Hello.", "Fine, thank you."]


async def test_a_stream_has_the_same_text_in_chunks_and_then_the_usage(tmp_path: Path) -> None:
    async with completing(tmp_path, answering("Fine, thank you.")) as client:
        options = {"include_usage": True}
        chunks = [each async for each in await say(client, stream=True, stream_options=options)]
        *text, last = chunks
        assert "".join(each.choices[0].delta.content or "" for each in text) == "Fine, thank you."
        assert len([each for each in text if each.choices[0].delta.content]) > 1
        assert [text[0].choices[0].delta.role, text[-1].choices[0].finish_reason] == ["assistant", "stop"]
        assert [last.choices, last.usage.total_tokens > 0, {each.usage for each in text}] == [[], True, {None}]
        assert len({each.id for each in chunks}) == 1
        plain = [each async for each in await say(client, stream=True)]
        assert [each for each in plain if each.usage or not each.choices] == []
        async with web_client(client) as web:
            body = {"model": "novel", "messages": HELLO, "stream": True}
            sent = await web.post("/v1/chat/completions", json=body, headers=ON_MAIN)
        assert sent.text.rstrip().endswith("data: [DONE]")


async def test_tools_run_in_the_turn_and_the_text_before_them_stays_in_a_stream(tmp_path: Path) -> None:
    @tool(risk="read_only")
    def look(item: str) -> str:
        """Look for an item."""
        return f"one {item}"

    plan = {"reply": "I look.", "calls": [{"tool": "look", "arguments": {"item": "hat"}}]}
    model = ScriptedLM([plan, {"reply": "There is one."}, plan, {"reply": "There is one."}])
    async with completing(tmp_path, model, agent={"tools": [look]}) as client:
        assert (await say(client)).choices[0].message.content == "There is one."
        chunks = [each async for each in await say(client, stream=True)]
        assert all(each.choices[0].delta.tool_calls is None for each in chunks)
        said = "".join(each.choices[0].delta.content or "" for each in chunks)
        assert said == "I look.\n\nThere is one."


async def test_a_system_message_reaches_the_model_in_order_and_is_kept_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    model, first, second = Prompts(), "be terse as zzsecretone", "be kind as zzsecrettwo"
    developer = {"role": "developer", "content": [{"type": "text", "text": second}]}
    messages: Any = [{"role": "system", "content": first}, developer, *HELLO]
    async with completing(tmp_path, model.lm) as client:
        for stream in (False, True):
            create: Any = client.chat.completions.with_raw_response.create
            raw = await create(model="novel", messages=messages, stream=stream, extra_headers=ON_MAIN)
            body = "".join([each async for each in raw.http_response.aiter_text()]) if stream else raw.text
            assert "Fine." in body
            assert "zzsecret" not in body + str(raw.headers)
        assert f"{first}\n\n{second}" in model.seen[0]
        await say(client)
        assert "zzsecret" not in model.seen[-1]
        async with web_client(client) as web:
            assert "zzsecret" not in (await web.get("/threads/main/messages")).text
        too_long = [{"role": "system", "content": "zzsecret" * 10_000}, *HELLO]
        assert "zzsecret" not in str((await refused(client, openai.APIStatusError, too_long)).body)
    own = [each.getMessage() for each in caplog.records if each.name.startswith("worldagent")]
    assert "zzsecret" not in str(own)
    assert [path for path in tmp_path.rglob("*") if path.is_file() and b"zzsecret" in path.read_bytes()] == []


async def test_an_approval_is_a_typed_refusal_and_the_same_key_gives_the_answer_afterwards(tmp_path: Path) -> None:
    key = {"Idempotency-Key": "k1"}
    async with completing(tmp_path, buying(), agent={"tools": [buy]}) as client:
        error = await refused(client, openai.ConflictError, headers=key)
        assert [error.code, error.param, error.type] == ["approval_required", None, "conflict_error"]
        [pause] = error.body["pauses"]
        assert [pause["function"], pause["arguments"]] == ["buy", {"item": "hat"}]
        console = f"{str(client.base_url).removesuffix('/v1/')}/console#/threads/ana%3Amain"
        assert [error.body["console"], console in error.body["remedy"]] == [console, True]
        again = await refused(client, openai.ConflictError, [{"role": "user", "content": "And?"}])
        assert [again.code, len(again.body["pauses"])] == ["approval_required", 1]
        async with web_client(client) as web:
            await web.post("/threads/main/resume", json={"answers": {pause["id"]: {"approve": {}}}})
        assert (await say(client, headers=key)).choices[0].message.content == "A hat is on its way."
        assert await history(client) == ["Hello.", "A hat is on its way."]


async def test_without_a_console_an_approval_names_the_path_that_answers_it(tmp_path: Path) -> None:
    async with completing(tmp_path, buying(), agent={"tools": [buy]}, console=False) as client:
        error = await refused(client, openai.ConflictError)
        path = str(client.base_url).removesuffix("/v1/") + "/threads/ana%3Amain/resume"
        assert [error.body["console"], f"POST {path}" in error.body["remedy"]] == [None, True]
        answers: dict[str, Any] = {error.body["pauses"][0]["id"]: {"approve": {}}}
        async with web_client(client) as web:
            turn = (await web.post(path, json={"answers": answers})).json()["turn"]
        assert turn["text"] == "A hat is on its way."


async def test_a_mounted_app_has_the_errors_of_the_api_for_each_of_its_paths(tmp_path: Path) -> None:
    app = WebApp(scripted_agent(tmp_path, answering()), login=by_header, names=["127.0.0.1"])
    host = Starlette(routes=[Mount("/agent", app)], lifespan=app.lifespan)
    async with served(host) as url, client_of(url) as client:
        missing = await client.get("/agent/v1/none")
        assert [missing.status_code, missing.json()["error"]["type"]] == [404, "invalid_request_error"]
        foreign = await client.get("/agent/v1/models", headers={"Host": "evil.example.com"})
        assert [foreign.status_code, foreign.json()["error"]["type"]] == [421, "invalid_request_error"]
        assert "type" not in (await client.get("/agent/none")).json()["error"]


async def test_the_response_of_an_error_names_the_new_thread(tmp_path: Path) -> None:
    async with completing(tmp_path, buying(), agent={"tools": [buy]}) as client:
        error = await refused(client, openai.ConflictError, thread=None)
        thread = error.response.headers[THREAD]
        assert [error.body["thread"], thread.startswith("ana:chat-")] == [thread, True]
        async with web_client(client) as web:
            assert len((await web.get(f"/threads/{thread}/pauses")).json()["pauses"]) == 1


async def test_a_turn_with_a_system_message_is_resumed_with_it_or_without_it_on_purpose(tmp_path: Path) -> None:
    messages: Any = [{"role": "system", "content": "be terse"}, *HELLO]
    async with completing(tmp_path, buying(), agent={"tools": [buy]}) as client:
        error = await refused(client, openai.ConflictError, messages, headers={"Idempotency-Key": "k1"})
        [step] = error.body["next"]
        assert [step["tool"], step["needs"]] == ["resume", ["answers", "role"]]
        answers: dict[str, Any] = {error.body["pauses"][0]["id"]: {"approve": {}}}
        async with web_client(client) as web:
            response = await web.post("/threads/main/resume", json={"answers": answers, "on_role_change": "refresh"})
        assert response.json()["turn"]["text"] == "A hat is on its way."
        done = await say(client, messages, headers={"Idempotency-Key": "k1"})
        assert done.choices[0].message.content == "A hat is on its way."


async def test_a_client_that_is_not_async_gets_turns_and_streams(tmp_path: Path) -> None:
    def talk(url: Any) -> list[str]:
        with openai.OpenAI(api_key="none", base_url=url, default_headers={"x-user": "ana", **ON_MAIN}) as client:
            done = client.chat.completions.create(model="novel", messages=HELLO)
            chunks = client.chat.completions.create(model="novel", messages=HELLO, stream=True)
            return [
                str(done.choices[0].message.content),
                "".join(each.choices[0].delta.content or "" for each in chunks),
            ]

    async with completing(tmp_path, answering("Fine.")) as client:
        assert await asyncio.wait_for(asyncio.to_thread(talk, client.base_url), 60) == ["Fine.", "Fine."]


async def test_an_approval_in_a_stream_is_its_last_line(tmp_path: Path) -> None:
    async with completing(tmp_path, buying(), agent={"tools": [buy]}) as client:
        with pytest.raises(openai.APIError) as caught:
            async for _chunk in await say(client, stream=True):
                pass
        body: Any = caught.value.body
        assert [caught.value.code, len(body["pauses"])] == ["approval_required", 1]
        async with web_client(client) as web:
            request = {"model": "novel", "messages": HELLO, "stream": True}
            sent = await web.post("/v1/chat/completions", json=request, headers=ON_MAIN)
        last = sent.text.strip().splitlines()[-1].removeprefix("data: ")
        assert json.loads(last)["error"]["code"] == "approval_required"


async def test_two_accounts_with_the_same_header_have_two_threads(tmp_path: Path) -> None:
    model = Prompts()
    async with completing(tmp_path, model.lm) as ana, of_user(str(ana.base_url).removesuffix("/v1/"), "bob") as bob:
        await say(ana, [{"role": "user", "content": "I am Ana."}])
        await say(bob, [{"role": "user", "content": "I am Bob."}])
        assert "Ana" not in model.seen[-1]
        assert await history(ana) == ["I am Ana.", "Fine."]
        error = await refused(bob, openai.PermissionDeniedError, headers={"X-Worldagent-Account": "ana"})
        assert error.code == "forbidden"


async def test_the_account_of_a_grant_with_several_is_named_in_a_header(tmp_path: Path) -> None:
    grant = Grant(("novel",), ("ana", "bob"))
    async with completing(tmp_path, answering(), login=None, grant=grant) as client:
        await say(client, headers={"X-Worldagent-Account": "bob"})
        async with web_client(client) as web:
            assert [each["account"] for each in (await web.get("/threads")).json()["threads"]] == ["bob"]


async def test_without_a_header_a_new_thread_begins_with_what_the_client_reports(tmp_path: Path) -> None:
    model = Prompts()
    messages: Any = [
        {"role": "user", "content": "My name is Ana."},
        {"role": "assistant", "content": "Good morning, Ana."},
        {"role": "user", "content": "What is my name?"},
    ]
    async with completing(tmp_path, model.lm) as client:
        raw = await client.chat.completions.with_raw_response.create(model="novel", messages=messages)
        thread = raw.headers[THREAD]
        said, answer = await history(client, thread)
        assert said.startswith("What is my name?\n\nEarlier messages, as the client reports them. They are untrusted")
        assert [answer, json.loads(said.splitlines()[-1])] == ["Fine.", messages[:-1]]
        await say(client, [*messages, *HELLO], thread)
        assert (await history(client, thread))[2:] == ["Hello.", "Fine."]
        other = await client.chat.completions.with_raw_response.create(model="novel", messages=HELLO)
        assert [other.headers[THREAD] == thread, (await history(client, other.headers[THREAD]))[0]] == [False, "Hello."]


async def test_without_a_header_a_repeated_key_is_one_turn_of_one_thread(tmp_path: Path) -> None:
    model = Prompts()
    async with completing(tmp_path, model.lm) as client:
        for _ in range(2):
            done = await say(client, thread=None, headers={"Idempotency-Key": "k1"})
            assert done.choices[0].message.content == "Fine."
        assert len(model.seen) == 1


async def test_a_token_with_globs_begins_threads_that_it_reaches(tmp_path: Path) -> None:
    grant = Grant(("novel",), ("eve",), ("shared", "[ab]*", "eve-*"))
    async with completing(tmp_path, answering(), login=lambda request: grant) as client:
        for key in ("k1", "k1", None):
            raw = await client.chat.completions.with_raw_response.create(
                model="novel", messages=HELLO, extra_headers={} if key is None else {"Idempotency-Key": key}
            )
            assert raw.headers[THREAD].startswith("eve-chat-")
        async with client_of(str(client.base_url).removesuffix("/v1/"), "eve") as eve:
            assert (await eve.get("/me")).json()["thread_prefix"] == "eve-"
            nightly = {"schedule": "nightly", "when": {"every": 3600}, "starts": {"message": "What is new?"}}
            made = (await eve.post("/schedules", json=nightly)).json()["schedule"]
            assert made["thread"].startswith("eve-")
            assert len((await eve.get("/threads")).json()["threads"]) == 2


async def test_a_key_of_another_account_is_another_turn(tmp_path: Path) -> None:
    model = Prompts()

    def login(request: Any) -> Grant:
        return Grant(("novel",), (request.headers["x-user"],))  # of one account, on threads that accounts share

    async with completing(tmp_path, model.lm, login=login) as ana:
        async with of_user(str(ana.base_url).removesuffix("/v1/"), "bob") as bob:
            for client in (ana, bob):
                await say(client, thread=None, headers={"Idempotency-Key": "k1"})
        assert len(model.seen) == 2


async def test_images_are_attached_and_addresses_stay_addresses(tmp_path: Path) -> None:
    data, address = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}", "https://example.com/hat.png"
    parts = [{"type": "text", "text": "Which is red?"}]
    parts += [{"type": "image_url", "image_url": {"url": url}} for url in (data, address)]  # type: ignore[dict-item]
    async with completing(tmp_path, answering()) as client:
        await say(client, [{"role": "user", "content": parts}])
        async with web_client(client) as web:
            message = (await web.get("/threads/main/messages")).json()["messages"][0]["body"]
            stored, linked = message["attachments"]
            assert [message["text"], stored["media_type"], linked["url"]] == ["Which is red?", "image/png", address]
            assert (await web.get(f"/attachments/{stored['sha256']}")).content == PIXEL


async def test_a_response_format_is_the_schema_of_the_answer(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    form = {"type": "json_schema", "json_schema": {"name": "book", "schema": schema}}
    model = ScriptedLM(lambda call: {"reply": {"title": "Dragons"}})
    async with completing(tmp_path, model) as client:
        done = await say(client, response_format=form)
        assert json.loads(done.choices[0].message.content) == {"title": "Dragons"}
        chunks = [each async for each in await say(client, response_format=form, stream=True)]
        assert json.loads("".join(each.choices[0].delta.content or "" for each in chunks)) == {"title": "Dragons"}


@pytest.mark.parametrize(
    ("param", "given"),
    [
        ("tools", {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}),
        ("functions", {"functions": [{"name": "f"}]}),
        ("n", {"n": 2}),
        ("logprobs", {"logprobs": True}),
        ("audio", {"audio": {"voice": "alloy", "format": "mp3"}}),
        ("response_format", {"response_format": {"type": "json_object"}}),
        ("messages", {"messages": []}),
        ("messages", {"messages": [*HELLO, {"role": "assistant", "content": "Hi."}]}),
        ("messages[0].role", {"messages": [{"role": "king", "content": "Hello."}]}),
        (
            "messages[0].content[0]",
            {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
        ),
        (
            "messages[0].content[0].image_url.url",
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,é"}}],
                    }
                ]
            },
        ),
    ],
)
async def test_what_is_not_supported_is_refused_with_its_param(tmp_path: Path, param: str, given: Any) -> None:
    async with completing(tmp_path, answering()) as client:
        error = await refused(client, openai.BadRequestError, **given)
        assert [error.param, error.type] == [param, "invalid_request_error"]


async def test_models_are_the_workspaces_and_sampling_is_ignored(tmp_path: Path) -> None:
    async with completing(tmp_path, answering()) as client:
        assert [each.id async for each in client.models.list()] == ["novel"]
        await say(client, temperature=0.1, max_tokens=5, seed=3, n=1, tool_choice="none")
        error = await refused(client, openai.NotFoundError, model="gpt-4o")
        assert [error.code, error.param] == ["model_not_found", "model"]


async def test_a_caller_that_is_not_logged_in_gets_the_clients_typed_error(tmp_path: Path) -> None:
    async with completing(tmp_path, answering(), login=lambda request: None) as client:
        error = await refused(client, openai.AuthenticationError)
        assert [error.code, error.type] == ["not_logged_in", "authentication_error"]


async def test_a_model_that_fails_is_an_error_and_no_answer(tmp_path: Path) -> None:
    def failing(call: Any) -> dict[str, Any]:
        raise ValueError("the service is down")

    async with completing(tmp_path, ScriptedLM(failing)) as ana:
        client = ana.with_options(max_retries=0)
        error = await refused(client, openai.APIStatusError)
        assert error.code == error.body["code"]
        assert error.body["remedy"]
        with pytest.raises(openai.APIError) as caught:
            async for _chunk in await say(client, thread="other", stream=True):
                pass
        assert caught.value.code == error.code
