"""Connects one model for one agent: it turns the developer's `lm` into an LM that can be called and closed.

The engines are in `http` and `local`, and `classification` interprets their failures. `abilities_of` describes models
for people who choose one; it contacts no service, and no call depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import dspy

from ...core import digest
from ...core.errors import InvalidArgument, ModelNotConfigured
from ..media import MediaKind
from .costs import RATE_LIMITERS, RateLimiter, listed_models
from .http import HttpEngine, Route, find_route, open_http
from .providers import LOCAL, Schemas, is_local, known_provider

_MISTRAL = "mistral"
_GPT = re.compile(r"(?:ft:)?gpt-(?!35)(\d+)(?:\.(\d+))?(?!\w)")  # Azure's name of gpt-3.5


async def _nothing() -> None:
    return


@dataclass(slots=True)
class Learned:
    """What is known of a service, beforehand or because a call has shown it; None until it was tried.

    Attributes:
        takes_tools: Whether it accepts tools.
        then_user: Whether it accepts a user message after results of calls.
        schemas: Whether it can hold an answer to a schema, as far as is known beforehand.
        took: Whether it has accepted one beside tools, and whether without.
        refused: By whether there were tools too, the digests of those that it refused.
        reads: Whether it reads the calls that its model makes. A server can accept tools and leave calls in the text.
        most: How many tools it accepts, if it has refused more.
        left_out: The digests of tools that it has refused.
        grammars: Whether it takes constraints in their schemas; some servers make a grammar of these and cannot.
        named: The digests of tools that a warning has named, because they are not offered.
        ends_reasoning: The tag that ended reasoning in its last answer, if nothing opened it.
    """

    takes_tools: bool | None = None
    then_user: bool | None = None
    schemas: Schemas = "never"
    took: set[bool] = field(default_factory=set)
    refused: dict[bool, set[str]] = field(default_factory=lambda: {True: set(), False: set()})
    reads: bool = False
    most: int | None = None
    left_out: set[str] = field(default_factory=set)
    grammars: bool = True
    named: set[str] = field(default_factory=set)
    ends_reasoning: str = ""

    def __post_init__(self) -> None:
        self.reads = self.reads or bool(self.takes_tools)

    def enforces(self, schema: str, *, beside_tools: bool) -> bool:
        """Whether an answer can be asked for with a schema, as far as is known."""
        possible = self.schemas == "beside" or (self.schemas == "alone" and not beside_tools)
        refused = self.refused[beside_tools]
        known = beside_tools in self.took or len(refused) < _ENOUGH
        return possible and known and digest(schema) not in refused

    def found(self, schema: str, *, beside_tools: bool, accepted: bool) -> None:
        """Remember whether it accepted a schema. One that has refused a few and taken none gets none any more."""
        if accepted:
            self.took.add(beside_tools)
        elif len(self.refused[beside_tools]) < _MOST_REFUSED:
            self.refused[beside_tools].add(digest(schema))


_ENOUGH: Final = 3  # schemas: a service that has them refuses one that is too large for it, or another request
_MOST_REFUSED: Final = 100  # schemas

_LEARNED: dict[tuple[str, str, str | None], Learned] = {}  # of services, for the entire process


@dataclass(frozen=True, slots=True, kw_only=True)
class Caching:
    """The ways in which a service caches the beginning of a prompt.

    Attributes:
        key: Whether it accepts a key that routes prompts with the same beginning to the same place.
        mark: Whether it accepts a mark at the end of the part to cache.
        own: Whether it is a server at a custom address, which can lack caching.
    """

    key: bool = False
    mark: bool = False
    own: bool = False


@dataclass(frozen=True, kw_only=True)
class ModelConnection:
    """The model of one agent, for as long as the agent is open.

    Attributes:
        lm: The LM for `dspy.context(lm=...)`. It never caches and never retries.
        name: For people: the model string, or `local`.
        plain: Whether this is the embedded model, which gets the plain-text adapter.
        weights: The embedded model's file, for its control tokens; None otherwise.
        max_tokens: The limit of an answer if a call sets none; None leaves it to the service.
        context: The limit of tokens for prompt and answer in sum, if it is known.
        takes: The kinds of media that it can accept in addition to text.
        learned: What is known of its service. New findings are stored here.
        services: The names of the tools that its service runs itself.
        combines: Whether it takes functions beside such tools.
        cache: How its service caches prompts; None if it cannot be controlled.
        own_prices: Whether its service is at a custom address, so that no price list has its prices.
        pace: The rate limiter of its calls; all code in the process that calls the same model shares it.
    """

    lm: dspy.BaseLM = field(repr=False)
    name: str
    plain: bool = False
    weights: Path | None = None
    max_tokens: int | None = None
    context: int | None = None
    takes: frozenset[MediaKind] = frozenset({"image", "file"})
    learned: Learned = field(default_factory=lambda: Learned(False), compare=False)
    services: frozenset[str] = frozenset()
    combines: bool = True
    cache: Caching | None = None
    own_prices: bool = False
    pace: RateLimiter = field(default_factory=RateLimiter, repr=False, compare=False)
    close: Callable[[], Awaitable[None]] = field(default=_nothing, repr=False, compare=False)

    async def aclose(self) -> None:
        """Release sockets, threads and memory. A second call does nothing. An LM of the user stays open."""
        await self.close()


async def connect_model(
    lm: str | dspy.BaseLM, *, api_key: str | None = None, api_base: str | None = None
) -> ModelConnection:
    """Prepare a model for calls from the running event loop. A hosted one is not contacted.

    Args:
        lm: A model string such as `openai/gpt-4o`; `local` for the embedded model (`local:PATH` for another GGUF file);
            or a `dspy.LM`, which is used through a copy that neither caches (R7, D11) nor retries, and is never closed.
        api_key: The key for a model string; without it, the environment variable of the service is read.
        api_base: The address for a model string; a server that is given by its address needs no key.

    Raises:
        InvalidArgument: `lm` has none of these forms, has its own callbacks (they would see the prompt, R7), or comes
            with a key or address that has no effect.
        ModelNotConfigured: The vendor is unknown, or the key or the weights are missing.
        MissingExtra: The embedded model is not installed.
    """
    if isinstance(lm, str) and lm and not is_local(lm):
        hosted, engine = await open_http(lm, api_key=api_key, api_base=api_base)
        return ModelConnection(
            lm=hosted,
            name=lm,
            takes=engine.takes(),
            learned=_learned_of(engine),
            services=engine.services(),
            combines=engine.combines(),
            cache=_caching(engine.route),
            own_prices=engine.route.api_base is not None,
            pace=RATE_LIMITERS.of_route(engine.route),
            close=engine.aclose,
        )
    if api_key is not None or api_base is not None:
        raise InvalidArgument(
            "a key and an address have no effect on this model", remedy="pass them with a model string only"
        )
    if isinstance(lm, dspy.BaseLM):
        return ModelConnection(
            lm=_without_traces(lm), name=lm.model, learned=Learned(_has_tools(lm)), pace=RATE_LIMITERS.of_lm(lm)
        )
    if not isinstance(lm, str) or not lm:
        raise InvalidArgument(
            f"`lm` must be a model string or a dspy.LM, got {type(lm).__name__!r}"
            if not isinstance(lm, str)
            else "`lm` must not be empty",
            remedy="pass a model string such as 'openai/gpt-4o', 'local', or a dspy.LM",
        )
    return await _connect_local(_path(lm))


async def check_model(lm: str, *, api_base: str | None = None) -> None:
    """Refuse a model string that `connect_model` would refuse. No service is contacted, and no weights are loaded.

    Raises:
        ModelNotConfigured, MissingExtra: As for `connect_model`, except for weights that exist but cannot be loaded.
    """
    if is_local(lm):
        from .local import find_weights

        find_weights(_path(lm))
        return
    _, engine = await open_http(lm, api_key=None, api_base=api_base)
    await engine.aclose()


def _path(model: str) -> str | None:
    """The file in a model string of the embedded model."""
    return model.partition(":")[2] or None


async def _connect_local(path: str | None) -> ModelConnection:
    from .local import CONTEXT, MAX_TOKENS, open_local

    lm, engine, model = await open_local(path)
    return ModelConnection(
        lm=lm,
        name=LOCAL,
        plain=True,
        weights=model.path,
        max_tokens=MAX_TOKENS,
        context=CONTEXT,
        takes=frozenset(),
        learned=Learned(True, then_user=True),
        close=engine.aclose,
    )


def _learned_of(engine: HttpEngine) -> Learned:
    """What is known of a service beforehand. A service for any model, or a server of the user, is tried once."""
    route, own = engine.route, engine.route.api_base is not None
    known = known_provider(route.provider)
    learned = Learned(
        engine.tools() if known.first_party and not own else None,
        then_user=False if route.provider == _MISTRAL else None,
        # most servers of users enforce a schema by keeping a model from anything else, tools included
        schemas="alone" if own else known.schemas,
    )
    return _LEARNED.setdefault((route.provider, route.model, route.api_base), learned)


def _caching(route: Route) -> Caching | None:
    """The ways in which lm15 can tell this service to cache. OpenAI refuses a mark for models before gpt-5.6."""
    vendor, own = route.provider.removesuffix("-chat").removesuffix("-responses"), route.api_base is not None
    if vendor == "anthropic":
        return Caching(mark=True, own=own)
    if vendor == "openai":
        version = _GPT.match(route.model)
        return Caching(key=True, mark=version is not None and tuple(map(int, version.groups("0"))) >= (5, 6), own=own)
    return None


def _has_tools(lm: dspy.BaseLM) -> bool | None:
    """Whether a user's engine declares that it supports tools. An LM that dspy connects is tried once."""
    engine = getattr(lm, "engine", None)
    if isinstance(engine, str):
        return None
    return getattr(engine, "supports_function_calling", False) is True


def _without_traces(lm: dspy.BaseLM) -> dspy.BaseLM:
    """Return a copy of `lm` that can be called with a role: no callbacks, no stored answers and no retries.

    It is a copy also if nothing is changed, because callbacks that are set on `lm` later would see every prompt.
    """
    if lm.callbacks:
        raise InvalidArgument(
            f"the dspy.LM {lm.model!r} must not have callbacks, because they would see every prompt",
            remedy="pass one without callbacks=",
        )
    return lm.copy(cache=False, num_retries=0)


# --- the most that a call can use ------------------------------------------------------------------------------------

_MOST_RECEIVED: Final = 16_384
"""Tokens of the longest answer of a model about which nothing is known and whose calls set no limit."""


def _priced_as(connection: ModelConnection) -> Mapping[str, Any] | None:
    """The entry of the price list for a model; None if its service has its own prices or it is not listed."""
    if connection.plain or connection.own_prices or getattr(connection.lm, "kwargs", {}).get("api_base"):
        return None
    try:
        return _entry(connection.name, listed_models())
    except ModelNotConfigured:
        return None


def most_received(connection: ModelConnection, generation: Mapping[str, Any]) -> int:
    """The most tokens of an answer: what its call sets, else what is known of the model.

    Args:
        connection: The model.
        generation: The settings of the call.
    """
    own, listed = getattr(connection.lm, "kwargs", {}), _priced_as(connection) or {}
    known = (
        generation.get("max_tokens"),
        connection.max_tokens,
        own.get("max_tokens"),
        own.get("max_completion_tokens"),
    )
    found = next(filter(None, (*known, listed.get("max_output_tokens"))), None)
    return _tokens(found) or _MOST_RECEIVED


def highest_cost(connection: ModelConnection, sent: int, received: int) -> float | None:
    """What tokens cost at most by the price list, in US dollars; None if the model has no known price.

    Args:
        connection: The model.
        sent: Tokens that are sent.
        received: Tokens that are received.
    """
    entry = _priced_as(connection) or {}
    prices = {name: value for name, value in entry.items() if isinstance(value, int | float) and "_per_token" in name}
    highest = [
        max((float(value) for name, value in prices.items() if name.startswith(begin)), default=None)
        for begin in (("input_cost", "cache_creation"), ("output_cost",))
    ]
    if highest[0] is None or highest[1] is None:
        return None
    return sent * highest[0] + received * highest[1]


# --- abilities --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """The abilities of a model; None is unknown.

    Attributes:
        tools: Whether it supports tools natively or, if embedded, under a grammar.
        images: Whether it accepts images.
        files: Whether it accepts documents.
        json_schema: Whether its answers can be constrained by a JSON Schema.
        reasoning: Whether the amount of reasoning before an answer can be set.
        context: The limit of tokens of a prompt.
        answer: The limit of tokens of an answer.
    """

    tools: bool | None = None
    images: bool | None = None
    files: bool | None = None
    json_schema: bool | None = None
    reasoning: bool | None = None
    context: int | None = None
    answer: int | None = None


def abilities_of(models: Iterable[str], *, strict: bool = True) -> list[Abilities]:
    """The abilities of models, in the order of their model strings.

    Args:
        models: Model strings. One with its own address is unknown, whatever the list has for its name.
        strict: Whether a model string of an unknown service is an error; otherwise its abilities are unknown.

    Raises:
        ModelNotConfigured: A model string names an unknown service.
    """
    listed, found = listed_models(), list[Abilities]()
    for model in models:
        try:
            found.append(_embedded() if is_local(model) else _listed_abilities(_entry(model, listed)))
        except ModelNotConfigured:
            if strict:
                raise
            found.append(Abilities())
    return found


def _embedded() -> Abilities:
    from .local import CONTEXT, MAX_TOKENS

    return Abilities(
        tools=True, images=False, files=False, json_schema=True, reasoning=False, context=CONTEXT, answer=MAX_TOKENS
    )


def _entry(model: str, listed: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any] | None:
    route = find_route(model, api_key="none", api_base=None)
    if route.api_base is not None:
        return None
    vendor = known_provider(route.provider).listed or route.provider.replace("-", "_")
    found = listed.get(f"{vendor}/{route.model}")
    bare = listed.get(route.model)
    if found is None and bare is not None and str(bare.get("litellm_provider")).startswith(vendor):
        found = bare
    return found


def _listed_abilities(entry: Mapping[str, Any] | None) -> Abilities:
    """The list records what a model can do, and omits what it cannot."""
    if entry is None:
        return Abilities()
    return Abilities(
        tools=entry.get("supports_function_calling") is True,
        images=entry.get("supports_vision") is True,
        files=entry.get("supports_pdf_input") is True,
        json_schema=entry.get("supports_response_schema") is True,
        reasoning=entry.get("supports_reasoning") is True,
        context=_tokens(entry.get("max_input_tokens")),
        answer=_tokens(entry.get("max_output_tokens")),
    )


def _tokens(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
