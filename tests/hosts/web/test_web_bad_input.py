"""The web app answers every input with an answer or a typed error."""

import asyncio
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from support.bad_requests import BODIES, DEEP, SECRET, Sent, spoiled, valid
from support.role_specs import spec_of
from support.web import events_in
from worldagent import Memory, Settings, Storage, WorldAgent, tool
from worldagent.hosts.service.records import ErrorAnswer
from worldagent.hosts.web import Grant, Limits, WebApp
from worldagent.hosts.web.routes import ENDPOINTS, Endpoint
from worldagent.members import WorkspaceConfig
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T10")


@tool(risk="write")
def buy(item: str) -> str:
    """Buy an item."""
    return f"one {item} is on its way"


def _reply(call: ScriptedCall) -> dict[str, Any]:
    if "Buy" in call.fields.get("message", "") and not call.steps:
        return {"reply": "", "calls": [{"tool": "buy", "arguments": {"item": "hat"}}]}
    return {"result": "Fine."} if "request" in call.fields else {"reply": "Fine."}


def _login(request: Any) -> Grant | None:
    if request.headers.get("x-user") == "operator":
        return Grant(("novel",), ("*",), operator=True)
    return Grant.of_account("novel", "ana")


EXAMPLES = settings().max_examples // 6  # for each of some sixty endpoints
NIGHTLY: dict[str, Any] = {"when": {"cron": "0 3 * * *"}, "starts": {"message": "Hello."}}


class Fuzzed:
    """A web app in this process, in a loop of its own that lasts for many examples."""

    def __init__(self, runner: asyncio.Runner, client: httpx2.AsyncClient, home: Path) -> None:
        self._runner, self._client, self.home = runner, client, home
        self.ids: dict[str, str] = {}

    def send(self, *requests: Sent) -> list[httpx2.Response]:
        """Send requests one after the other."""

        async def sent() -> list[httpx2.Response]:
            return [await asyncio.wait_for(each.to(self._client, self.ids), 30) for each in requests]

        return self._runner.run(sent())


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.soak)])
def fuzzed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Fuzzed]:
    """A web app whose agent has a society, a memory, a turn that waits and a schedule."""
    url = None
    if request.param == "postgres":
        from support.postgres import new_database

        url = new_database()
    config = WorkspaceConfig(id="novel", name="Novel", owner="ana", roles=(spec_of("cro"),))
    home = tmp_path_factory.mktemp("web")
    agent = WorldAgent(
        "novel",
        lm=ScriptedLM(_reply),
        storage=Storage(home=home, url=url),
        settings=Settings(model_backoff=0, model_attempts=1, thread_wait=0.1),
        memory=Memory(),
        society=config,
        tools=[buy],
    )
    app = WebApp(agent, login=_login, limits=Limits(account_refused=10**9))
    client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://test")
    with asyncio.Runner() as runner:
        lifespan = app.lifespan()
        runner.run(lifespan.__aenter__())
        found = Fuzzed(runner, client, home)
        made = found.send(
            Sent("POST", "/threads/main/messages", body={"text": "Hello.", "key": "k1"}),
            Sent("POST", "/threads/waiting/messages", body={"text": "Buy a hat.", "key": "k1"}),
            Sent("POST", "/threads/asking/messages", body={"text": "Buy a hat.", "key": "k1"}),
            Sent("POST", "/memory", body={"text": "The hat is red."}),
            Sent("POST", "/schedules", body={**NIGHTLY, "schedule": "nightly"}),
        )
        assert [each.status_code for each in made] == [200] * 5, [each.text for each in made]
        said, waiting, asking, entry = (each.json() for each in made[:4])
        [history] = found.send(Sent("GET", "/threads/main/messages"))
        found.ids = {
            "TURN": said["turn"]["id"],
            "WAITING": waiting["turn"]["id"],
            "PAUSE": waiting["turn"]["pauses"][0]["id"],
            "ASKED": asking["turn"]["pauses"][0]["id"],
            "MESSAGE": history.json()["messages"][0]["id"],
            "ENTRY": entry["entry"]["id"],
        }
        yield found
        runner.run(client.aclose())
        runner.run(lifespan.__aexit__(None, None, None))


def check(found: httpx2.Response, endpoint: Endpoint | None = None) -> dict[str, Any]:
    """Check that a response is an answer of its model or a typed error, which it returns, without a role's text."""
    assert SECRET not in found.text
    if found.request.method == "HEAD" or found.status_code == 204:
        return {}
    if found.status_code >= 400:
        assert found.status_code < 500, found.text
        error = ErrorAnswer.model_validate_json(found.content).error
        assert error.code
        assert error.problem
        assert error.remedy
        return error.model_dump()
    elif found.headers["content-type"].startswith("text/event-stream"):
        last = events_in(found.text)[-1]
        assert last["type"] == "turn" or last["error"]["code"] != "internal", last
    elif endpoint is not None:
        endpoint.operation.answer.model_validate_json(found.content)
    return {}


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda each: each.operation.name)
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_an_endpoint_answers_every_input(
    fuzzed: Fuzzed, caplog: pytest.LogCaptureFixture, endpoint: Endpoint, data: st.DataObject
) -> None:
    fits = data.draw(st.booleans())
    request = data.draw(valid(endpoint) if fits else spoiled(valid(endpoint)))
    user = data.draw(st.sampled_from([b"ana", b"operator"]))
    request = Sent(request.method, request.path, request.query, request.body, {"x-user": user, **request.headers})
    found, after = fuzzed.send(request, Sent("GET", "/threads"))
    event(str(found.status_code))
    check(found, endpoint if fits else None)
    assert after.status_code == 200
    assert SECRET not in caplog.text
    caplog.clear()


# --- by hand ----------------------------------------------------------------------------------------------------------


def run(text: Any = "Hello.", thread: Any = "t", **more: Any) -> dict[str, Any]:
    """A run of AG-UI's clients."""
    messages = [{"id": "1", "role": "user", "content": text}]
    return {"threadId": thread, "runId": "r", "messages": messages, "state": {}, "tools": [], "context": [], **more}


def answered(**more: Any) -> dict[str, Any]:
    """A run that answers the interrupt of the thread `asking`."""
    return run(thread="asking", resume=[{"interruptId": "ASKED", "status": "resolved", **more}])


def asked(content: Any = "Hello.", **more: Any) -> dict[str, Any]:
    """A request of OpenAI's clients."""
    return {"model": "novel", "messages": [{"role": "user", "content": content}], **more}


def system(content: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": content}, {"role": "user", "content": "Hello."}]
    return {"model": "novel", "messages": messages}


def image(url: str) -> dict[str, Any]:
    return asked([{"type": "image_url", "image_url": {"url": url}}])


def any_of(*values: Any) -> tuple[Any, ...]:
    """Values of several types, for the type checkers."""
    return values


AG_UI: list[tuple[int, str, Any]] = [
    *((400, "invalid_argument", body) for body in (*BODIES, {}, b"")),
    *((400, "invalid_argument", run(forwardedProps=props)) for props in any_of([], "x", 5, True)),
    *(
        (400, "invalid_argument", run(forwardedProps={"role": role}))
        for role in (SECRET, [SECRET], {"content": [SECRET]}, {SECRET: 1})
    ),
    *((400, "invalid_argument", run(forwardedProps={name: ["x", 5]})) for name in ("workspace", "account", "model")),
    (400, "invalid_argument", run(forwardedProps={"attachments": "x"})),
    (400, "model_not_configured", run(forwardedProps={"model": "none"})),
    (403, "forbidden", run(forwardedProps={"account": "bob"})),
    *((400, "invalid_argument", run(text)) for text in ("", " ", "\ud800", 5, None, [], [{"type": "binary"}])),
    *((400, "invalid_argument", run(thread=thread)) for thread in any_of("", "\0", "\ud800", "x" * 201, [], None)),
    *((400, "invalid_argument", run(runId=key)) for key in any_of("", "\0", "\ud800", "x" * 201, [])),
    *((400, "invalid_argument", run(messages=messages)) for messages in ([], "x", [5], [{"role": SECRET}])),
    *((413, "too_large", run(**{name: DEEP})) for name in ("state", "context", "forwardedProps")),
    (400, "invalid_argument", run(tools=[{"name": "x", "description": "x", "parameters": {}}])),
    (404, "unknown_pause", answered(interruptId="none", payload={"approved": True})),
    (400, "invalid_argument", answered(interruptId="\ud800")),
    (400, "invalid_argument", answered(status="perhaps")),
    (400, "invalid_argument", run(thread="asking", resume=answered()["resume"] * 2)),
    *((400, "answer_invalid", answered(payload=payload)) for payload in any_of(None, 5, [], "yes")),
    *((400, "invalid_argument", answered(payload={"approved": value})) for value in (None, 1, "yes", [True])),
    (400, "answer_invalid", answered(payload={"approved": False, "reason": ["x"]})),
    (400, "answer_invalid", answered(payload={"approved": True, "arguments": []})),
]

COMPLETIONS: list[tuple[int, str, Any]] = [
    *((400, "", body) for body in (*BODIES, {}, b"")),
    *((400, "invalid_value", asked(model=model)) for model in any_of([], 5, None, "")),
    (404, "model_not_found", asked(model="none")),
    *((400, "invalid_value", asked(messages=messages)) for messages in ("x", [], [5], [{"role": ["user"]}])),
    *((400, "", asked(content)) for content in ("", 5, None, "\ud800", [5], [{"type": "text", "text": 5}])),
    *((400, "", system(content)) for content in (f"{SECRET}\ud800", [SECRET], {"content": SECRET})),
    (400, "role_too_long", system(SECRET * 2000)),
    *((400, "invalid_value", image(url)) for url in ("data:", "data:image/png;base64,\xff", "data:a/b;base64,A")),
    *((400, "attachment_invalid", image(url)) for url in ("", "\0", "http://[", "data:\ud800;base64,AAAA", "x" * 5000)),
    *((400, "", asked(response_format=form)) for form in (5, {"type": "json_schema"})),
    *((400, "", asked(response_format={"type": "json_schema", "json_schema": {"schema": schema}}))
      for schema in ({"type": "none"}, {"$ref": "#/none"})),
    (413, "too_large", asked(response_format={"type": "json_schema", "json_schema": {"schema": DEEP}})),
    *((400, "unsupported_parameter", asked(n=number)) for number in (0, -1, 2**70, float("nan"))),
    (400, "invalid_value", asked(stream="yes")),
    (400, "invalid_value", asked(stream_options=5)),
]  # fmt: skip


@pytest.mark.parametrize(("path", "cases"), [("/ag-ui", AG_UI), ("/v1/chat/completions", COMPLETIONS)])
def test_clients_of_other_protocols_get_typed_errors(
    fuzzed: Fuzzed, caplog: pytest.LogCaptureFixture, path: str, cases: list[tuple[int, str, Any]]
) -> None:
    headers = {"x-user": b"ana", "x-worldagent-thread": b"other"}
    was = fuzzed.send(Sent("GET", "/threads"))[0].json()
    found = fuzzed.send(*(Sent("POST", path, body=body, headers=headers) for _, _, body in cases))
    for (status, code, body), response in zip(cases, found, strict=True):
        error = check_openai(response) if path.startswith("/v1/") else check(response)
        if isinstance(body, bytes) and error["code"] == "too_large":
            assert response.status_code == 413, (body, response.text)
            continue
        assert response.status_code == status, (body, response.text)
        assert code in ("", error["code"]), (body, response.text)
    assert fuzzed.send(Sent("GET", "/threads"))[0].json() == was
    assert SECRET not in caplog.text


def check_openai(found: httpx2.Response) -> dict[str, Any]:
    """Check an error in the form of OpenAI's API; returns it."""
    assert SECRET not in found.text
    error: dict[str, Any] = found.json()["error"]
    assert {"message", "type", "param", "code"} <= set(error), error
    assert error["message"].endswith(error["remedy"])
    assert found.headers["x-should-retry"] == "false"
    return error


JSON_TYPE: dict[str, bytes] = {"content-type": b"application/json"}


@pytest.mark.parametrize(
    ("status", "code", "method", "path", "headers"),
    [
        (404, "not_found", "GET", "/v1/none", {}),
        (404, "not_found", "GET", "/v1/models/%2E%2E", {}),
        (405, "method_not_allowed", "GET", "/v1/chat/completions", {}),
        (405, "method_not_allowed", "POST", "/v1/models", JSON_TYPE),
        (415, "unsupported_media_type", "POST", "/v1/chat/completions", {"content-type": b"text/plain"}),
        (415, "unsupported_media_type", "POST", "/v1/chat/completions", {"content-type": b"\xff"}),
        (400, "secret_in_url", "GET", "/v1/models?api_key=x", {}),
        (403, "invalid_origin", "POST", "/v1/chat/completions", {"origin": b"http://["}),
    ],
)
def test_requests_that_no_completion_answers_have_the_errors_of_its_api(
    fuzzed: Fuzzed, status: int, code: str, method: str, path: str, headers: dict[str, bytes]
) -> None:
    [found] = fuzzed.send(Sent(method, path, body=b"x" if method == "POST" else None, headers=headers))
    assert (found.status_code, check_openai(found)["code"]) == (status, code)


@pytest.mark.parametrize(
    ("status", "code", "method", "path", "body"),
    [
        (404, "unknown_turn", "GET", "/turns/none/trace", None),
        (404, "unknown_turn", "GET", "/turns/%ED%A0%80/trace", None),
        (400, "invalid_argument", "GET", "/turns/%00/trace", None),
        (400, "invalid_argument", "GET", f"/turns/{'x' * 300}/trace", None),
        (400, "invalid_argument", "GET", "/turns/TURN/trace?after=x", None),
        (400, "invalid_argument", "GET", "/turns/TURN/trace?more=1", None),
        (404, "unknown_member", "GET", "/members/none", None),
        (404, "unknown_member", "GET", "/members/user", None),
        (400, "invalid_argument", "GET", "/members/%00", None),
        (403, "forbidden", "GET", "/members/cro?workspace=other", None),
        (405, "method_not_allowed", "POST", "/members/cro", {}),
        (403, "forbidden", "GET", "/live?account=bob", None),
        (400, "invalid_argument", "GET", "/live?account=%00", None),
        (400, "invalid_argument", "GET", "/live?more=1", None),
        (405, "method_not_allowed", "POST", "/live", {}),
        (401, "invalid_token", "POST", "/login", {}),
        (401, "invalid_token", "POST", "/login", {"token": []}),
        (401, "invalid_token", "POST", "/login", {"token": "\ud800"}),
        (401, "invalid_token", "POST", "/login", {"token": "x" * 50_000}),
        (400, "invalid_argument", "POST", "/login", b"{"),
        (400, "invalid_argument", "GET", "/me?more=1", None),
        (404, "attachment_missing", "GET", f"/attachments/{'a' * 64}", None),
        (400, "invalid_argument", "GET", "/attachments/%2E%2E", None),
        (400, "invalid_argument", "POST", "/attachments?more=1", b"x"),
        (400, "attachment_invalid", "POST", "/attachments", b""),
        (404, "not_found", "GET", "/console/%2e%2e%2fapp.py", None),
        (404, "not_found", "GET", "/console/%00", None),
        (405, "method_not_allowed", "POST", "/console/", {}),
        (400, "model_not_configured", "POST", "/threads/t/messages", {"text": "Hello.", "model": "none"}),
        (400, "model_not_configured", "POST", "/threads/t/messages", {"text": "Hello.", "model": ["none"]}),
    ],
)
def test_paths_without_an_openapi_entry_and_faults_that_were_found_have_typed_errors(
    fuzzed: Fuzzed, status: int, code: str, method: str, path: str, body: Any
) -> None:
    [found] = fuzzed.send(Sent(method, path, body=body))
    assert (found.status_code, check(found)["code"]) == (status, code)
    assert str(fuzzed.home) not in found.text
