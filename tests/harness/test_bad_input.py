"""What an embedder declares and gets wrong: the error has its type, names the thing, and ends with the remedy."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.agents import Ask, Nothing, Said, buy, failure, refused
from support.steps import turns_of
from worldagent import Role, Roles, Settings, Storage, Tier, WorldAgent, agent
from worldagent.core import errors
from worldagent.core.pauses import Approve
from worldagent.graphs import Shape
from worldagent.graphs.shapes import SandboxLimits, investigation_shape
from worldagent.harness import CallContext, Policy, Registry, Worker, flow, tool
from worldagent.harness.gate import Predicate, Rule
from worldagent.harness.limits import Limits, Retry
from worldagent.harness.schema import params_of
from worldagent.harness.trace import OpenTelemetryTrace
from worldagent.mcp_client import HttpHost, StdioHost
from worldagent.mcp_client.tools import McpServer
from worldagent.memory.attachments import Attachment
from worldagent.signatures.engines.connect import abilities_of
from worldagent.signatures.engines.http import find_route
from worldagent.signatures.escape import control_tokens
from worldagent.signatures.signature import check_signature
from worldagent.storage import PostgresAddress
from worldagent.tools import BuiltinTools
from worldagent.tools.files import Roots, file_functions
from worldagent.tools.web import LocalIndex, web_fetch_function


@flow
async def ask(ctx: CallContext) -> str:
    return "asked"


async def plain() -> str:
    return "plain"


ASK: Any = ask
BUY: Any = buy
URL = "https://host.example/mcp"
AGENT, HTTP, STDIO = partial(WorldAgent, "novel", lm="local"), partial(HttpHost, URL), partial(StdioHost, ["host"])
ATTACHMENT = partial(Attachment, name="x.png", media_type="image/png", sha256="ab" * 32, size=3)
ROLE, SERVER, SHAPE = partial(Role, "widow"), partial(McpServer, HTTP()), partial(Shape, "job", Nothing, Said)
NAMED, WORKER = partial(Worker, instructions="Go."), partial(Worker, "w", instructions="Go.")
PARAMS, ROUTE = partial(params_of, "list"), partial(find_route, api_key=None, api_base=None, env={})
NUMBERS: Sequence[Any] = (0, -1, float("inf"), float("nan"), 1e10, "soon")

Row = tuple[Callable[..., object], dict[str, Any], str]
REFUSED: dict[type[Exception], list[Row]] = {
    errors.FunctionInvalid: [
        (Retry, {"attempts": 0}, "`attempts` must be an integer from 1 to 20, got 0"),
        (Retry, {"backoff": 9, "longest": 1}, "`backoff` must be a number of seconds"),
        (partial(replace, ask), {"timeout": 0}, "the timeout of the function 'ask' must be a positive number"),
        (partial(replace, ask), {"retry": Retry(attempts=2)}, "the flow 'ask' cannot be retried"),
        (lambda: tool(name="f")(lambda *args: 1), {}, "'args' of the function 'f' cannot be passed by name"),
        (lambda: tool(name="f")(lambda: 1), {}, "the function 'f' has no return type"),
        (lambda: tool(ASK), {}, "'ask' is already a tool"),
        (Registry, {"functions": 7}, "functions= must be a list, got 'int'"),
        (Registry, {"functions": [7]}, "7 is not a function"),
        (Registry, {"workers": [7]}, "7 is not a worker"),
        (PARAMS, {"schema": 7}, "the schema of the params of 'list' must be a JSON object"),
        (PARAMS, {"schema": {"type": "array"}}, "'list' must describe an object"),
        (PARAMS, {"schema": {"type": "strin"}}, r"'list' is not a JSON Schema \(at type: anyOf\)"),
        (PARAMS, {"schema": {"properties": {"a": {"$ref": URL}}}}, "refers to something that is not in it"),
        (PARAMS, {"schema": {"properties": {f"a{number}": {} for number in range(6000)}}}, "holds more than"),
        (PARAMS, {"schema": {"description": "x" * 300_000}}, "'list' is too large"),
        (PARAMS, {"schema": {"default": object()}}, "'list' is not JSON"),
        (PARAMS, {"schema": {"patternProperties": {"a": {}}, "unevaluatedProperties": False}}, "has both patternPro"),
        (WORKER, {"instructions": " "}, "the worker 'w' has no instructions"),
        (WORKER, {"model": ""}, "the model of the worker 'w' must be a text"),
        (WORKER, {"limits": 5}, "the limits of the worker 'w' must be Limits, got 'int'"),
        (WORKER, {"policy": {}}, "the policy of the worker 'w' must be a Policy, got 'dict'"),
        (WORKER, {"policy": Policy(rules=(Rule(decision="approve", function="f", seconds=3),))}, "has seconds=, which"),
        (WORKER, {"retries": -1}, "retries .* must be an integer from 0 to 20, got -1"),
        (WORKER, {"tools": [7]}, "tools of the worker 'w' must be texts"),
        (WORKER, {"input": str}, "must be a model or a schema, .*; pass a pydantic model"),
        (WORKER, {"output": {"type": "thing"}}, "'w'"),
        (WORKER, {"output": object()}, "has no schema"),
        (WORKER, {"prompt": "Judge {what}"}, "placeholder 'what'.*; write {field} for one of request"),
        (WORKER, {"prompt": "Judge {}"}, "placeholder ''"),
        (WORKER, {"prompt": "Judge {request!r}"}, "placeholder 'request'"),
        (WORKER, {"prompt": "Judge {request"}, "a single brace"),
        (WORKER, {"prompt": 3}, "the prompt of the worker 'w'"),
        (Limits, {"calls": 1.5}, "the limit `calls`"),
        (Limits, {"tokens": True}, "the limit `tokens`"),
        (Limits, {"cost": float("inf")}, "the limit `cost`"),
        (SHAPE, {"handler": len}, "handler of shape 'job'"),
        (Shape, {"key": "job", "params": dict, "result": Said, "handler": buy}, "'job' must declare pydantic models"),
        *(
            (make, {"name": name}, f"cannot be named '{name}'")
            for make in (NAMED, lambda name: tool(name=name)(plain), lambda name: Shape(name, Nothing, Said, BUY))
            for name in ("code", "converse")
        ),
        (investigation_shape, {"functions": ["price.of"]}, r"price\.of"),
        (check_signature, {"signature": Ask.fields}, r"a Signature must be a subclass of dspy\.Signature"),
        (check_signature, {"signature": Ask.delete("message")}, "must have input and output fields"),
    ],
    errors.InvalidArgument: [
        (AGENT, {"storage": "/tmp"}, "`storage` must be a Storage"),
        (AGENT, {"identity": " "}, "`identity`"),
        (AGENT, {"profile": 3}, "`profile`"),
        (AGENT, {"mcp": ["fs"]}, "`mcp`"),
        *((AGENT, {"approver": given}, "`approver` must be") for given in (3, "yes", lambda pause: Approve(), Approve)),
        (AGENT, {"notifier": print}, "notify"),
        (Roles, {"policy": "x"}, "policy 'x'"),
        (Roles, {"sources": {Tier.THREAD: "x"}}, "thread tier is not callable"),
        (Roles, {"host": URL}, "neither HttpHost, StdioHost nor a RoleStore"),
        (HttpHost, {"url": "http://ana:s3cret@host.example/mcp"}, "url"),
        (HTTP, {"token": "s3cret\r\nX-Evil: 1"}, "`token`"),
        (HTTP, {"mode": "modern"}, "`mode` must be .* got 'modern'"),
        (HTTP, {"tools": {"role_list": "role_get"}}, "its own name"),
        (HTTP, {"connect_timeout": True}, "`connect_timeout` must be a positive number"),
        (StdioHost, {"argv": ["host", "a\0b"]}, "argv"),
        (STDIO, {"env": {"A": 1}}, "env"),
        (STDIO, {"stderr": "log"}, "got 'log'"),
        (STDIO, {"timeout": 0}, "`timeout` must be a positive number of seconds, got 0"),
        (STDIO, {"tools": "x"}, "`tools` must be a mapping"),
        (McpServer, {"host": "x"}, "`host` must be an HttpHost or a StdioHost"),
        (SERVER, {"result_limit": 0}, "`result_limit` must be a positive number of characters, got 0"),
        (SERVER, {"prefix": "no blank "}, "`prefix` must .* got 'no blank '"),
        (SERVER, {"allow": "read_*"}, "allow"),
        (SERVER, {"risk": {"*": "harmless"}}, "harmless"),
        (SERVER, {"timeout": 0}, "`timeout` must be .* got 0"),
        (Storage, {"home": 3}, r"`home` must be a pathlib\.Path or None, got int"),
        (Storage, {"home": "a\0b"}, "`home` contains a NUL character"),
        (lambda: Storage(Path(__file__)).begun(), {}, r"`home` '.*test_bad_input\.py' is a file"),
        (PostgresAddress, {"url": "postgresql://h/d", "connections": 0}, "`connections`"),
        (BuiltinTools, {"roots": "project"}, "`roots` must be a list of folders"),
        (BuiltinTools, {"allow": [""]}, "`allow` must be a list of globs"),
        (BuiltinTools, {"timeouts": {"nosuch": 1}}, "`timeouts` has no entry 'nosuch'"),
        (partial(file_functions, Roots([])), {"limit": 999}, "`limit` must be an integer of at least 1,000, got 999"),
        *((LocalIndex, {"sources": given}, "`sources` must be a list of folders or pages") for given in ([], "x", [7])),
        (SandboxLimits, {"seconds": 0}, "seconds"),
        (SandboxLimits, {"memory": 0}, "memory"),
    ],
    errors.PolicyInvalid: [
        (Rule, {"decision": "allow"}, "decision"),
        (Rule, {"decision": "ask", "function": ()}, "function"),
        (Rule, {"decision": "approve", "after": "fetch"}, "approves with after="),
        (Rule, {"decision": "approve", "after": "fetch", "function": "write"}, "approves with after="),
        (Rule, {"decision": "approve", "after": "fetch", "arguments": {"path": "a"}}, "approves with after="),
        (Rule, {"decision": "approve", "risk": ("write", "destructive")}, "approves destructive calls"),
        (Rule, {"decision": "ask", "risk": "dangerous"}, "risk"),
        (Rule, {"decision": "ask", "colour": "red"}, "colour"),
        (Rule, {"decision": "approve", "approvers": "ana"}, "does not ask"),
        (Rule, {"decision": "approve", "times": 0}, "times"),
        (Rule, {"decision": "approve", "seconds": float("inf")}, "seconds"),
        (
            Rule,
            {"decision": "ask", "arguments": {"path": {"smells": 1}}},
            "arguments: path: there is no predicate .smells.",
        ),
        (Rule, {"decision": "ask", "arguments": {"path": {}}}, "it has no condition"),
        (Rule, {"decision": "ask", "arguments": {"path": ["a"]}}, "give a glob, a value or a predicate"),
        (Rule, {"decision": "ask", "arguments": {"n": float("nan")}}, "never holds"),
        (Rule, {"decision": "ask", "approvers": []}, "approvers: it is empty"),
        (Rule, {"decision": "approve", "risk": []}, "risk: it is empty"),
        (Rule, {"decision": "approve", "times": True}, "times"),
        (Rule, {"decision": "approve", "times": "5"}, "times"),
        (Rule, {"decision": "refuse", "expires": 60}, "has expires= but does not ask"),
        *((Rule, {"decision": "ask", "expires": given}, "expires") for given in NUMBERS),
        (Predicate, {}, "it has no condition"),
        (Predicate, {"under": ""}, "under"),
        (Predicate, {"most": "a"}, "most"),
        (Predicate, {"least": float("nan")}, "least"),
        (Predicate, {"longest": -1}, "longest"),
        (Predicate, {"among": "abc"}, "among"),
        (Predicate, {"equals": object()}, "is not JSON"),
        (Policy, {"rules": [Rule(decision="ask", name="all"), Rule(decision="refuse")]}, "'2' is never used: 'all'"),
        (Policy, {"rules": [Rule(decision="ask", name="a"), Rule(decision="ask", name="a")]}, "two rules"),
        (Policy, {"default": "approve"}, "default"),
        *((Policy, {"expires": given}, "expires") for given in NUMBERS),
    ],
    errors.SettingsInvalid: [
        *((Settings, {"account_limits": {name: 1}}, f"account_limits: .*'{name}'") for name in ("rounds", "call")),
        (Settings, {"account_limits": {"seconds": 1}}, "account_limits"),
        *((Settings, {"turn_depth": given}, "turn_depth") for given in (0, 21, 1.5)),
        (Settings, {"turn_cost": float("nan")}, "turn_cost"),
        *((Settings, {"checkpoint_keep": given}, "checkpoint_keep") for given in (-1, 10**12, 10**24)),
        *((Settings, {"checkpoint_age": given}, "checkpoint_age") for given in (-1, 10**12, 10**24)),
        (Settings, {"unattended": "later"}, "unattended"),
        (Settings, {"lm": ["s3cret"]}, "lm: .*valid string"),
        *(
            (Settings, {"api_base": given}, "and have a host, got '.*write it as http://localhost:8000/v1")
            for given in ("localhost:8902", "http://", "http://host:port/v1", "ftp://user:s3cret@x/v1?a=b")
        ),
        (Settings, {"mcp_servers": "s3cret"}, r"mcp_servers must be a table"),
        (Settings, {"mcp_files": "s3cret"}, r"mcp_files must be a list of paths"),
        (Settings, {"mcp_variables": {"a": ["s3cret"]}}, r"mcp_variables\.a"),
        (Settings, {"mcp_servers": {"x": {}}}, r"mcp_servers\.x: a server must have either command or url"),
        (Settings, {"mcp_servers": {"x": {"command": "a", "colour": "s3cret"}}}, r"mcp_servers\.x\.colour"),
        (Settings, {"mcp_servers": {"x": {"type": "sse", "url": URL}}}, r"mcp_servers\.x\.type"),
    ],
    errors.RoleInvalid: [
        (ROLE, {"content": "   "}, "'widow'"),
        (ROLE, {"content": "half \ud800 pair"}, "'widow'"),
        (ROLE, {"content": 5}, "'widow'.*, got int"),
        (ROLE, {"content": "Be terse.", "applies_to": [""]}, "`applies_to` of the role 'widow'"),
        (Role, {"name": None, "content": "Be terse."}, "name"),
        (Role, {"name": "half \udc00", "content": "Be terse."}, "name"),
    ],
    errors.AttachmentInvalid: [
        (ATTACHMENT, {"name": "../x"}, "not a plain file name"),
        (ATTACHMENT, {"sha256": "../../role.key"}, "a sha256 that is not 64 hex digits"),
        (ATTACHMENT, {"url": URL}, "must have either a sha256 or a url"),
        (ATTACHMENT, {"sha256": None, "url": "file:///etc/passwd"}, "an address that is neither"),
    ],
    errors.ModelNotConfigured: [
        (ROUTE, {"model": "mistrall/large"}, r"(?=.*`worldagent models`).*did you mean 'mistral/large'\?"),
        (ROUTE, {"model": "bedrock/m"}, "(?=.*`worldagent models`).*'bedrock-chat/MODEL'"),
        (ROUTE, {"model": "nosuch/m"}, "(?=.*`worldagent models`).*'openai/MODEL' with `api_base`"),
        (abilities_of, {"models": ["nosuch/model"]}, "'nosuch/model'"),
        (control_tokens, {"path": Path("/no/such.gguf")}, r"'such\.gguf' cannot be read"),
    ],
    errors.UnknownTier: [(Roles, {"sources": {Tier.ACCOUNT: len}}, "account tier takes no source")],
    AttributeError: [(lambda: agent.nothing, {}, "no attribute 'nothing'")],
}


@pytest.mark.parametrize(
    ("make", "given", "error", "says"),
    [(make, given, error, says) for error, rows in REFUSED.items() for make, given, says in rows],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_invalid_declaration_is_refused(
    make: Callable[..., object], given: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        make(**given)
    assert str(caught.value).endswith(getattr(caught.value, "remedy", ""))
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("package", "make", "extra"),
    [
        ("opentelemetry", OpenTelemetryTrace, "otel"),
        ("re2", lambda: BuiltinTools(roots=(Path(__file__).parent,)).named(["grep_content"]), "tools"),
        ("pydantic_monty", investigation_shape, "sandbox"),
        ("html_to_markdown", web_fetch_function, "web"),
    ],
)
def test_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, package: str, make: Callable[[], object], extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert f"worldagent[{extra}]" in str(refused(make, errors.MissingExtra))


async def test_calls_that_cannot_be_made_here_are_refused(tmp_path: Path) -> None:
    """A leaf that kept the context of a flow cannot call, and without an agent no worker can run."""
    kept: list[CallContext] = []

    @tool(risk="read_only")
    async def sly() -> str:
        return str(await kept[0].call("main", {}))

    @flow
    async def main(ctx: CallContext) -> str:
        kept.append(ctx)
        return str(await ctx.call("sly", {}))

    async with turns_of(tmp_path, sly, main, WORKER().function) as turns:
        for name, given, says in (
            ("main", {}, "the leaf 'sly' cannot call 'main'"),
            ("w", {"request": "x"}, "run here"),
        ):
            failed = await failure(turns.drive(name, given))
            assert isinstance(failed, errors.FunctionInvalid)
            assert says in failed.problem
