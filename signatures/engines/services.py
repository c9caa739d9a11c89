"""The tools that services run themselves, inside a model call: who has which, how they are declared, what came back.

Names are the same for all services: `web_search`, `web_fetch`, `code_execution` and `file_search`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from ...core.files import packaged_table
from ...core.generation import CODE_EXECUTION, FILE_SEARCH, WEB_FETCH, WEB_SEARCH
from .providers import known_provider

Protocol = Literal["chat", "responses", "messages", "gemini"]


def _table() -> Mapping[str, Any]:
    return packaged_table(__package__, "service_tools.toml")


def _form(protocol: Protocol, provider: str) -> str:
    """The form in which a service is told of its tools; services with OpenAI's chat protocol have one each."""
    return provider if protocol == "chat" else protocol


def service_tools(protocol: Protocol, provider: str) -> frozenset[str]:
    """The tools that a service has.

    Args:
        protocol: Its protocol.
        provider: The engine's name of the service.
    """
    own = known_provider(provider).tools
    return frozenset(_table()["declared"].get(_form(protocol, provider), ())) if own is None else own


def combines(protocol: Protocol, model: str) -> bool:
    """Whether a model takes functions and tools of its service in one request. Gemini does from version 3 on."""
    return protocol != "gemini" or model.removeprefix("models/").startswith("gemini-3")


def with_service_tools(
    payload: dict[str, Any],
    tools: Sequence[tuple[str, Mapping[str, Any]]],
    protocol: Protocol,
    *,
    provider: str,
    model: str,
) -> dict[str, Any]:
    """The JSON of a request that declares tools of the service.

    Args:
        payload: The JSON.
        tools: Names and options of tools that the service has. Options replace what is declared otherwise, such as the
            `type`, and the service checks them.
        protocol: The protocol of the service.
        provider: The engine's name of the service.
        model: The model's id.
    """
    made = [_declared(_form(protocol, provider), *each) for each in tools]
    if protocol == "responses":
        more = [_table()["include"][each["type"]] for each in made if each["type"] in _table()["include"]]
        payload = {**payload, "include": list(dict.fromkeys([*payload.get("include", ()), *more]))}
    elif provider == "gemini" and combines(protocol, model):
        payload = {**payload, "toolConfig": _combined(payload.get("toolConfig"))}
    return {**payload, "tools": [*(payload.get("tools") or ()), *made]}


def _declared(form: str, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """A tool of a service, with its options where the form has them."""
    declared: Mapping[str, Any] = _table()["declared"][form][name]
    match form:
        case "gemini":
            return {key: dict(options) for key in declared}
        case "openrouter":
            return {**declared, **({"parameters": dict(options)} if options else {})}
        case _:
            return {**declared, **options}


def _combined(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Gemini's configuration of tools if it has both kinds: calls of both are in its answer, and AUTO is refused."""
    calling = (config or {}).get("functionCallingConfig")
    kept = {name: value for name, value in (config or {}).items() if value is not calling}
    if isinstance(calling, Mapping) and calling.get("mode") != "AUTO":
        kept["functionCallingConfig"] = calling
    return {**kept, "includeServerSideToolInvocations": True}


def betas_of(tools: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """The values of Anthropic's header for features that need one, for the tools of a request."""
    betas: Mapping[str, str] = _table()["betas"]
    kinds = [_declared("messages", *each)["type"] for each in tools]
    return [betas[kind] for kind in kinds if kind in betas]


_OTHER: Final = "service_tool"
_KINDS: Final = (("search", WEB_SEARCH), ("fetch", WEB_FETCH), ("url_context", WEB_FETCH), ("browser", WEB_SEARCH))


def tool_of(name: str) -> str:
    """The name here of a tool that a service calls by one of its own names; `service_tool` for any other."""
    said = name.lower()
    if "file_search" in said:
        return FILE_SEARCH
    if "code" in said or "python" in said:
        return CODE_EXECUTION
    return next((tool for part, tool in _KINDS if part in said), _OTHER)


# --- what came back ---------------------------------------------------------------------------------------------------

_LONGEST: Final = 20_000  # characters of a result, and of an argument, that are kept, as JSON
_MOST_ARGUMENTS: Final = 20
_MOST_CITED: Final = 100
_DEEPEST: Final = 20
_OPAQUE: Final = ("encrypted_", "thoughtSignature", "search_suggestions", "renderedContent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One call of a tool that a service made and answered itself.

    Attributes:
        tool: The name of the tool.
        arguments: What the model asked for, such as a query; empty if the service does not say.
        result: What came back, as JSON without parts that only the service can read; None if it does not say.
        failed: Whether the service says that the call failed.
    """

    tool: str
    arguments: Mapping[str, Any]
    result: Any = None
    failed: bool = False

    @classmethod
    def of(cls, tool: str, arguments: Mapping[str, Any], result: Any, *, failed: bool = False) -> Served:
        """Make one of what a service says."""
        given = {name: _limited(value) for name, value in list(_readable(arguments).items())[:_MOST_ARGUMENTS]}
        return cls(tool=tool, arguments=given, result=_limited(_readable(result)), failed=failed)

    @staticmethod
    def cited(calls: Sequence[Served], citations: Iterable[Mapping[str, Any]]) -> list[Served]:
        """The calls, with the sources that the answer cites at the last call that could have found them."""
        sources: dict[str, dict[str, Any]] = {}
        for each in citations:
            place = each.get("url") or each.get("file_id") or each.get("filename")
            if isinstance(place, str) and len(sources) < _MOST_CITED:
                names = ("url", "title", "file_id", "filename")
                sources.setdefault(place, {name: each[name] for name in names if isinstance(each.get(name), str)})
        finds = [place for place, each in enumerate(calls) if each.tool != CODE_EXECUTION]
        if not sources or not finds:
            return list(calls)
        found = calls[finds[-1]]
        given = {} if found.result is None else {"result": found.result}
        with_sources = replace(found, result={**given, "cited": list(sources.values())})
        return [*calls[: finds[-1]], with_sources, *calls[finds[-1] + 1 :]]

    def json(self) -> dict[str, Any]:
        """The call as JSON."""
        return asdict(self)


def _readable(value: Any, depth: int = 0) -> Any:
    """A value without what only its service can read: encrypted texts, signatures, pictures."""
    if depth > _DEEPEST:
        return None
    if isinstance(value, Mapping):
        binary = value.get("type") == "base64"
        return {
            str(name): _readable(each, depth + 1)
            for name, each in value.items()
            if not str(name).startswith(_OPAQUE) and not (binary and name == "data")
        }
    if isinstance(value, list):
        return [_readable(each, depth + 1) for each in value]
    return value


def _limited(value: Any) -> Any:
    """A value; of one that is too long the beginning of its JSON, as a text."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if len(text) <= _LONGEST else f"{text[:_LONGEST]} [...]"
