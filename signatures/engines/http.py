"""Model strings over dspy's bundled HTTP client (lm15), with one connection pool per event loop and service (D6).

The embedded model is in `local`, and `classification` interprets failures. Nothing here imports litellm or a vendor's
SDK, whatever is installed: dspy uses litellm only for LMs that have no engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import ssl
import types
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

import dspy
from dspy import lm15
from dspy.clients.engines.stream_guard import achecked_stream
from dspy.utils.exceptions import LMError

from ...core.errors import ModelNotConfigured
from ..media import MediaKind
from .classification import AnswerTooLong, EngineClosed, Unreachable, status_said
from .costs import note_cost
from .providers import ADDRESS_REMEDY, HEADERS, address_problem, advice, declared, engine_string, setup
from .reading.base import Reader, Reported
from .reading.chat import ChatReader
from .reading.events import json_or_text, read_answer
from .reading.gemini import GeminiReader
from .reading.messages import MessagesReader
from .reading.responses import ResponsesReader
from .sending import FOUND, NO_REFERENCES, amending, fitted, marked, open_to_amends, put_back, with_references
from .services import Protocol, betas_of, combines, service_tools, with_service_tools

T = TypeVar("T")

# What `dspy.lm15` does not export.
_TRANSPORTS: Any = import_module("dspy._vendor.lm15.transports")
_BASE: Any = import_module("dspy._vendor.lm15.providers.base")
_RESULTS: Any = import_module("dspy._vendor.lm15.result")

_MAX_CONNECTIONS = 1000
_MOST_PARTS: Final = 8
"""How many requests one answer can take, if its service pauses while it runs its own tools."""

_CLIENT_ERROR, _SERVER_ERROR, _END_OF_ERRORS = 400, 500, 600  # HTTP statuses of errors
_LONGEST_BODY = 1 << 21  # bytes of an answer that is not streamed: twice its characters in the longest escapes
_LONGEST_VECTORS = 1 << 24  # bytes of an answer with vectors: 64 with 8,192 numbers each
_EMBEDDINGS: Final = "embeddings"
_BETA: Final = "anthropic-beta"
_TIMEOUTS = lm15.Timeouts(connect=10, read=120, write=30, pool=30)  # seconds; a fallback: callers set time limits
_NO_KEY = "none"  # the key that is sent to a custom server if none is configured
_SAMPLES: Final[dict[MediaKind, lm15.ImagePart | lm15.DocumentPart]] = {
    "image": lm15.ImagePart(media_type="image/png", data="iVBORw0KGgo="),
    "file": lm15.DocumentPart(media_type="application/pdf", data="JVBERi0="),
}
_OWN_LM = "or make the agent with a `dspy.LM` of your own"


@dataclass(frozen=True)
class Route:
    """The destination of a model string.

    Attributes:
        provider: lm15's name of the service.
        model: The model's id on the wire.
        api_key: The key, or None if lm15 finds the credentials itself (a cloud's own chain, a stored login).
        api_base: The service's address, or None for the usual one.
        variable: The environment variable that usually holds the service's key.
    """

    provider: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    api_base: str | None = field(default=None, repr=False)
    variable: str | None = None


def find_route(model: str, *, api_key: str | None, api_base: str | None, env: Mapping[str, str] | None = None) -> Route:
    """Return the destination of `model`, without network access.

    Args:
        model: A model string in dspy's format, such as `openai/gpt-4o`.
        api_key: The key; without it, the service's own environment variable is read.
        api_base: The address; without it, `OPENAI_API_BASE` or `OPENAI_BASE_URL` is read, or the same for other
            vendors. A server that is given by its address needs no key.
        env: Replaces the environment of the process.

    Raises:
        ModelNotConfigured: The vendor is unknown, the key is missing, or the address is invalid.
    """
    env = os.environ if env is None else env
    router = lm15.AsyncLMRouter(lm15.RouterConfig(env=env, providers=declared()))
    found = None
    for spelling in dict.fromkeys((engine_string(model), model.replace("/", ":", 1))):  # then the engine's own names
        with contextlib.suppress(lm15.UnknownModelError, lm15.AmbiguousModelError, lm15.UnsupportedFeatureError):
            found = router.resolve_openai_chat(spelling)
            break
    if found is None or not found.model:
        raise ModelNotConfigured(
            f"the model string {model!r} must name a known service", remedy=f"{advice(model)}, {_OWN_LM}"
        )
    variable, base = ("api_base", api_base) if api_base else _base_from(env, model, found.provider)
    api_base = base or None
    problem = None if api_base is None else address_problem(api_base)
    if problem is not None:
        raise ModelNotConfigured(f"{variable}: {problem}", remedy=ADDRESS_REMEDY)
    key = api_key or (env.get(found.env_key) if found.env_key else None)
    if not key and found.credential_policy == "key" and found.placeholder_key is None:
        if api_base is None and found.env_key is not None:
            raise ModelNotConfigured(
                f"the model {model!r} has no API key",
                remedy=f"set the environment variable {found.env_key}, set api_base to the address of a server that "
                f"needs no key, {_OWN_LM}",
            )
        key = _NO_KEY if api_base is not None else None
    return Route(found.provider, found.model, key or None, api_base, found.env_key)


def _base_from(env: Mapping[str, str], model: str, provider: str) -> tuple[str, str]:
    """The variable with the address of a service, and its value; both empty if none is set."""
    vendor, slash, _ = model.partition("/")
    prefix = (vendor if slash else provider.split("-", 1)[0]).upper().replace("-", "_")
    return next(((name, env[name]) for name in (f"{prefix}_API_BASE", f"{prefix}_BASE_URL") if env.get(name)), ("", ""))


@dataclass
class _Shared:
    router: lm15.AsyncLMRouter
    users: int = 0


_CAUSES: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (socket.gaierror, "no host has this name"),
    (ssl.SSLCertVerificationError, "its certificate is not valid"),
    (ssl.SSLError, "the encryption (TLS) failed"),
    (ConnectionRefusedError, "nothing listens there"),
    (ConnectionResetError, "it closed the connection"),
    (TimeoutError, "it did not answer in time"),
)


_TRUST: Final = (
    "check the service's address (api_base); if your company or your own server has an authority of its own, "
    "name a file of it in the environment variable SSL_CERT_FILE"
)


def _unreachable(failure: BaseException, url: str) -> Unreachable:
    """The error of a connection that failed, with the address and the cause. Only known words are used (D5)."""
    parts = urlsplit(url)
    cause: BaseException | None = failure
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__
    why = next((said for kind, said in _CAUSES if isinstance(cause, kind)), "")
    if not why:
        number = getattr(cause, "errno", None)
        why = os.strerror(number).lower() if isinstance(number, int) and number > 0 else "the connection broke"
    text = f"{parts.netloc.rpartition('@')[2]}: {why}"
    return Unreachable(text, _TRUST) if isinstance(cause, ssl.SSLCertVerificationError) else Unreachable(text)


def _as_openai_has_it(found: Any) -> dict[str, Any]:
    """The JSON of an error in the form that lm15 reads. Servers omit its envelope, or send a list or a text.

    A service that passes on the error of another one has it in its metadata.
    """
    found = found[0] if isinstance(found, list) and found else found
    found = found if isinstance(found, Mapping) else {"message": str(found)}
    listed = found.get("errors")
    error = found.get("error") or (listed[0] if isinstance(listed, list) and listed else found)
    if not isinstance(error, Mapping):
        error = {"message": str(error), "code": found.get("code"), "type": found.get("error_type")}
    metadata = error.get("metadata")
    behind = metadata.get("raw") if isinstance(metadata, Mapping) else None
    said = [str(each) for each in (error.get("message") or error.get("detail"), behind) if each]
    return {**found, "error": {**error, "message": " ".join(said)}}


def _status_in(body: Mapping[str, Any]) -> int | None:
    """The status of HTTP that the JSON of an error has or stands for; None if it does not say."""
    error = body["error"]
    names = [error.get(name) for name in ("status_code", "code", "status", "type")]
    for name in map(str, names):
        if name.isdecimal() and _CLIENT_ERROR <= int(name) < _END_OF_ERRORS:
            return int(name)
    said = " ".join(str(name) for name in names if name).lower()
    return status_said(said)


def _reported(service: Any, body: Any, headers: Any, *, status: int | None = None) -> lm15.LM15Error:
    """lm15's error for the JSON or the text of one, which a service sends with a status or inside an answer."""
    error = body if isinstance(body, str) else _as_openai_has_it(body)
    known = status if status is not None or isinstance(error, str) else _status_in(error)
    text = error if isinstance(error, str) else json.dumps(error)
    made: lm15.LM15Error = service.normalize_error(known or _SERVER_ERROR, text)
    if known is None:
        made.status = None
    _BASE._attach_error_metadata(made, headers)
    if made.retry_after is None:
        made.retry_after = _wait_in(text)
    return made


_WAIT: Final = re.compile(r"(?:retry|try again)\D{1,20}((?:\d+(?:\.\d+)?(?:ms|[hms]))+)", re.IGNORECASE)
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def _with_betas(sent: Any, betas: Sequence[str]) -> Any:
    """A request to Anthropic with values of its header for features that need one."""
    named = [value for name, value in sent.headers if name.lower() == _BETA]
    values = list(dict.fromkeys([*(each for value in named for each in value.split(",")), *betas]))
    others = [(name, value) for name, value in sent.headers if name.lower() != _BETA]
    return replace(sent, headers=[*others, (_BETA, ",".join(values))]) if values else sent


def _wait_in(text: str) -> float | None:
    """The seconds after which a service says that it can be asked again, if it says so in the text of an error."""
    found = _WAIT.search(text)
    if found is None:
        return None
    return sum(float(size) * _UNITS[unit] for size, unit in re.findall(r"([\d.]+)(ms|[hms])", found[1].lower()))


_READERS: Final[Mapping[Protocol, type[Reader]]] = {
    each.PROTOCOL: each for each in (MessagesReader, GeminiReader, ResponsesReader, ChatReader)
}


def _protocol_of(adapter: Any) -> Protocol:
    """The protocol that one of lm15's adapters speaks."""
    if isinstance(adapter, lm15.AnthropicLM):
        return "messages"
    if isinstance(adapter, lm15.GeminiLM):
        return "gemini"
    return "responses" if isinstance(adapter, lm15.OpenAILM) else "chat"


class _Routers:
    """The routers in use, per event loop and connection. A router owns its sockets, which belong to one loop."""

    def __init__(self) -> None:
        self._live: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Route, _Shared]]
        self._live = weakref.WeakKeyDictionary()

    def acquire(self, route: Route) -> lm15.AsyncLMRouter:
        """Return the running loop's router for `route`, counting one more user of it."""
        live, key = self._of_loop(), self._key(route)
        if key not in live:
            live[key] = _Shared(_router(route))
        shared = live[key]
        shared.users += 1
        return shared.router

    async def release(self, route: Route) -> None:
        """Remove one user. The last one closes the sockets."""
        live, key = self._of_loop(), self._key(route)
        if key not in live:
            return  # released under another loop: the sockets close when the router is collected
        live[key].users -= 1
        if not live[key].users:
            await live.pop(key).router.aclose()

    def _of_loop(self) -> dict[Route, _Shared]:
        return self._live.setdefault(asyncio.get_running_loop(), {})

    @staticmethod
    def _key(route: Route) -> Route:
        return replace(route, model="")


_ROUTERS = _Routers()  # the sockets of this process, like its event loops; each agent only has its engine


def _router(route: Route) -> lm15.AsyncLMRouter:
    return lm15.AsyncLMRouter(
        lm15.RouterConfig(
            providers=declared(),
            api_keys={route.provider: route.api_key} if route.api_key else None,
            base_urls={route.provider: route.api_base} if route.api_base else None,
            transport=_BoundedTransport(),
        )
    )


class _BoundedTransport:
    """lm15's connections to a service, with a limit for complete answers. lm15 limits each event of a stream itself."""

    def __init__(self) -> None:
        self._transport = _TRANSPORTS.StdlibAsyncTransport(
            max_connections=_MAX_CONNECTIONS,
            connect_timeout=_TIMEOUTS.connect,
            read_timeout=_TIMEOUTS.read,
            write_timeout=_TIMEOUTS.write,
            pool_timeout=_TIMEOUTS.pool,
            trust_env=bool(getproxies()),  # otherwise it searches the environment at every call
        )

    def stream(self, request: Any) -> Any:
        """Send a request with the headers of the running call. The answer is read inside the block."""
        if headers := HEADERS.get():
            kept = [(name, value) for name, value in request.headers if name.lower() not in headers]
            request = replace(request, headers=[*kept, *headers.items()])
        longest = _LONGEST_VECTORS if request.url.endswith(f"/{_EMBEDDINGS}") else _LONGEST_BODY
        return self._bounded(self._transport.stream(request), longest)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()

    @contextlib.asynccontextmanager
    async def _bounded(self, sent: Any, longest: int) -> AsyncGenerator[Any, None]:
        async with sent as answer:

            async def read() -> bytes:
                body = bytearray()
                async for chunk in answer:
                    body += chunk
                    if len(body) > longest:
                        raise AnswerTooLong
                return bytes(body)

            answer.read = read
            yield answer


class _Outside:
    """Runs coroutines without the context variables of the turn, in the task that awaits them.

    A connection that is kept, and a timer until its time, keep the context in which they are made: the turn and its
    role. So the connection of a call has a context of its own, with nothing but the call's headers.
    """

    def __init__(self) -> None:
        self._context = Context()
        self._context.run(HEADERS.set, HEADERS.get())

    @types.coroutine
    def run(self, running: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """Run a coroutine to its end."""
        step: Callable[[Any], Any] = running.send
        given: Any = None
        while True:
            try:
                awaited = self._context.run(step, given)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                given = None  # an exception whose traceback has this frame would keep itself alive
            try:
                step, given = running.send, (yield awaited)
            except (asyncio.CancelledError, GeneratorExit, RuntimeError) as error:  # all that a task throws into it
                step, given = running.throw, error


async def _next(events: AsyncIterator[Any]) -> Any:
    """The next event; None after the last one."""
    return await anext(events, None)


class _NoReferences(Exception):
    """The service does not take references to tools."""


class HttpEngine:
    """The engine behind `dspy.LM.acall` for one model string. Make it inside the event loop that uses it.

    Attributes:
        route: The destination of its calls.
    """

    def __init__(self, route: Route) -> None:
        self.route = route
        self._wire_model = f"{route.provider}:{route.model}"
        self._router = _ROUTERS.acquire(route)
        self._origin = f"{self._wire_model} {route.api_base or ''}"
        self._refers = route.provider == "anthropic" and route.api_base is None  # whether it takes references to tools
        self._closed = False

    async def complete(self, request: lm15.Request) -> lm15.Response:
        """Ask once and return the complete answer."""
        accumulator = _RESULTS.StreamAccumulator(request)
        async with contextlib.aclosing(
            achecked_stream(self._ask(request, stream=False), provider=self.route.provider)
        ) as events:
            async for event in events:
                accumulator.push(event)
        response: lm15.Response = accumulator.response()
        return response

    async def stream(self, request: lm15.Request) -> AsyncGenerator[Any, None]:
        """Ask once and yield the answer in pieces. Closing the generator closes the connection."""
        async with contextlib.aclosing(self._ask(request, stream=True)) as events:
            async for event in events:
                yield event

    async def _ask(self, request: lm15.Request, *, stream: bool) -> AsyncGenerator[Any, None]:
        """Send a request, and read its answer as events, whether it was asked for in pieces or not."""
        if self._closed:  # a closed router would silently open a new pool
            raise EngineClosed
        outside, model = _Outside(), ""
        found = FOUND.get() if self._refers else frozenset[str]()
        async with contextlib.aclosing(self._exchange(request, stream=stream, found=found)) as events:
            while (event := await outside.run(_next(events))) is not None:
                if event.type == "start":
                    model = event.model or ""
                elif event.type == "end":
                    await self._note_cost(model or None, event.usage, event.provider_data)
                yield event

    async def _exchange(
        self, request: lm15.Request, *, stream: bool, found: frozenset[str]
    ) -> AsyncGenerator[Any, None]:
        service: Any = self._router.lm(self._wire_model)
        inner, protocol = service._inner, self._protocol
        open_to_amends(inner)
        own = [(each.name, each.config or {}) for each in request.tools if isinstance(each, lm15.BuiltinTool)]
        functions = (
            tuple(each for each in request.tools if not isinstance(each, lm15.BuiltinTool)) if own else request.tools
        )
        request, kept = marked(replace(request, model=self.route.model, tools=functions), self._origin)
        reader = _READERS[protocol](self._origin, tools=bool(functions))
        reader.services = bool(own)
        before: Sequence[Mapping[str, Any]] = ()

        def amend(payload: dict[str, Any]) -> dict[str, Any]:
            payload = with_references(fitted(put_back(payload, kept)), found)
            if own:
                where = {"provider": self.route.provider, "model": self.route.model}
                payload = with_service_tools(payload, own, protocol, **where)
            return {**payload, "messages": [*payload["messages"], *before]} if before else payload

        for part in range(_MOST_PARTS):
            with amending(amend):
                sent, adaptations = await service._build(inner._build, request, stream=stream, policy="silent")
            if own and protocol == "messages":
                sent = _with_betas(sent, betas_of(own))
            reader.can_pause = part + 1 < _MOST_PARTS
            events = self._events(service, sent, reader, adaptations, request, refers=bool(found))
            try:
                async with contextlib.aclosing(events):
                    async for event in events:
                        yield event
            except _NoReferences:
                self._refers, found = False, frozenset()
                continue
            if not reader.paused:
                return
            before = [reader.continues()]

    async def _events(
        self, service: Any, sent: Any, reader: Reader, adaptations: Any, request: lm15.Request, *, refers: bool
    ) -> AsyncGenerator[Any, None]:
        """Send one request, and read its answer."""
        inner = service._inner
        try:
            async with service.transport.stream(sent) as answer:
                if answer.status >= _CLIENT_ERROR:
                    text = (await answer.read()).decode("utf-8", "replace")
                    if refers and NO_REFERENCES.search(text):
                        raise _NoReferences
                    raise _reported(inner, json_or_text(text), answer.headers, status=answer.status)
                events: Any = read_answer(answer, reader, longest=_LONGEST_BODY)
                if _BASE._client_side_stop(adaptations):
                    events = _RESULTS.atruncate_stream_at_stop(events, request.config.stop)
                async with contextlib.aclosing(events):
                    try:
                        async for event in events:
                            yield event
                    except Reported as error:
                        raise _reported(inner, error.body, answer.headers) from None
        except _TRANSPORTS.TransportError as failure:
            raise _unreachable(failure, sent.url) from failure

    async def embed(self, texts: Sequence[str]) -> Any:
        """Ask once for the vectors of texts, and return the service's JSON, whatever it is; None if it sent none.

        Raises:
            LM15Error: The service refused, failed or cannot be reached.
        """
        if self._closed:
            raise EngineClosed
        service: Any = self._router.lm(self._wire_model)
        # lm15 has no embeddings; the parts that its chat calls consist of do the same for them.
        inner = service._inner
        request = inner._emit(
            method="POST",
            url=f"{service.base_url.rstrip('/')}/{_EMBEDDINGS}",
            endpoint=_EMBEDDINGS,
            model=self.route.model,
            headers=inner._headers(),
            payload={"model": self.route.model, "input": [*texts], "encoding_format": "float"},
        )
        answer: Any = await _Outside().run(service._send(request))
        if answer.status >= 400:
            raise inner._http_error(answer)
        with contextlib.suppress(ValueError):
            return answer.json()
        return None

    async def _note_cost(self, model: str | None, usage: lm15.Usage | None, data: Any) -> None:
        route = self.route
        await note_cost(route.provider, (model, route.model), usage, data, own=route.api_base is not None)

    async def aclose(self) -> None:
        """Release the connection pool. A second call does nothing."""
        if not self._closed:
            self._closed = True
            await _ROUTERS.release(self.route)

    def check(self) -> None:
        """Check that the credentials exist, without using them.

        Raises:
            NotConfiguredError: The credentials are missing.
        """
        self._router.lm(self._wire_model)

    def takes(self) -> frozenset[MediaKind]:
        """The media that the service's interface supports, without network access.

        Not every model supports all of them.
        """
        return frozenset(kind for kind, part in _SAMPLES.items() if self._plans(lm15.Message.user((part,))))

    def tools(self) -> bool:
        """Whether the service's interface supports tools. A custom server can lack them."""
        return self._plans(lm15.Message.user("Go."), lm15.FunctionTool(name="go"))

    @cached_property
    def _protocol(self) -> Protocol:
        service: Any = self._router.lm(self._wire_model)
        return _protocol_of(service._inner)

    def services(self) -> frozenset[str]:
        """The names of the tools that the service runs itself."""
        return service_tools(self._protocol, self.route.provider)

    def combines(self) -> bool:
        """Whether the model takes functions beside tools of its service."""
        return combines(self._protocol, self.route.model)

    def embeds(self) -> bool:
        """Whether the service has OpenAI's protocol, and so can have embeddings."""
        return isinstance(self._router.lm(self._wire_model), lm15.AsyncOpenAIChatLM)

    def _plans(self, message: lm15.Message, *tools: lm15.FunctionTool) -> bool:
        try:
            self._router.plan(lm15.Request(model=self._wire_model, messages=(message,), tools=tools))
        except (lm15.LM15Error, ValueError):
            return False
        return True


class AsyncOnly:
    """The engine for calls without an event loop, which dspy asks for next to the asynchronous one."""

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Refuse: only the asynchronous engine makes calls."""
        raise lm15.UnsupportedFeatureError("this model is called through acall only")


async def open_http(model: str, *, api_key: str | None, api_base: str | None) -> tuple[dspy.LM, HttpEngine]:
    """Return an LM for `model`, and the engine to close after use, without network access.

    Raises:
        ModelNotConfigured: The vendor is unknown, the key is missing, or the service's settings are incomplete.
    """
    route = find_route(model, api_key=api_key, api_base=api_base)
    engine = HttpEngine(route)
    try:
        engine.check()
        return (dspy.LM(model, engine=AsyncOnly(), async_engine=engine, cache=False, num_retries=0), engine)
    except lm15.NotConfiguredError as error:
        variables = " or ".join(error.env_keys) or route.variable
    except (lm15.LM15Error, LMError, ValueError):
        variables = None
    except BaseException:
        await engine.aclose()
        raise
    await engine.aclose()
    how = "" if route.api_base else setup(route.provider)
    if not how:
        how = f"set the environment variable {variables}" if variables else "check its name and address"
    raise ModelNotConfigured(f"the model {model!r} is not configured", remedy=f"{how}, {_OWN_LM}")
