"""Connects one model for one agent: it turns the developer's `lm` into an LM that can be called and closed.

The engines are in `http` and `local`, and `classify` interprets their failures.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import dspy

from ...core.errors import InvalidArgument
from ..media import MediaKind
from .costs import RATE_LIMITERS, RateLimiter
from .http import HttpEngine, Route, open_http
from .providers import LOCAL, first_party, is_local

_MISTRAL = "mistral"
_GPT = re.compile(r"(?:ft:)?gpt-(?!35)(\d+)(?:\.(\d+))?(?!\w)")  # Azure's name of gpt-3.5


async def _nothing() -> None:
    return


@dataclass(slots=True)
class ToolSupport:
    """The native abilities of a service; None until they were tried.

    Attributes:
        known: Whether it accepts tools.
        then_user: Whether it accepts a user message after results of calls.
    """

    known: bool | None = None
    then_user: bool | None = None


_SUPPORT: dict[tuple[str, str, str | None], ToolSupport] = {}  # the known support of services, for the entire process


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
        tools: What it supports of tools natively. New findings are stored here.
        cache: How its service caches prompts; None if it cannot be controlled.
        pace: The rate limiter of its calls; all code in the process that calls the same model shares it.
    """

    lm: dspy.BaseLM = field(repr=False)
    name: str
    plain: bool = False
    weights: Path | None = None
    max_tokens: int | None = None
    context: int | None = None
    takes: frozenset[MediaKind] = frozenset({"image", "file"})
    tools: ToolSupport = field(default_factory=lambda: ToolSupport(False), compare=False)
    cache: Caching | None = None
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
            tools=_support(engine),
            cache=_caching(engine.route),
            pace=RATE_LIMITERS.of_route(engine.route),
            close=engine.aclose,
        )
    if api_key is not None or api_base is not None:
        raise InvalidArgument(
            "a key and an address have no effect on this model", remedy="pass them with a model string only"
        )
    if isinstance(lm, dspy.BaseLM):
        return ModelConnection(
            lm=_without_traces(lm), name=lm.model, tools=ToolSupport(_has_tools(lm)), pace=RATE_LIMITERS.of_lm(lm)
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
        tools=ToolSupport(True, then_user=True),
        close=engine.aclose,
    )


def _support(engine: HttpEngine) -> ToolSupport:
    """The known support of a service for tools. A service for any model, or a server of the user, is tried once."""
    route = engine.route
    known = engine.tools() if route.api_base is None and first_party(route.provider) else None
    support = ToolSupport(known, then_user=False if route.provider == _MISTRAL else None)
    return _SUPPORT.setdefault((route.provider, route.model, route.api_base), support)


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
    """Return `lm` in a form that can be called with a role: no callbacks, no stored answers and no retries."""
    if lm.callbacks:
        raise InvalidArgument(
            f"the dspy.LM {lm.model!r} must not have callbacks, because they would see every prompt",
            remedy="pass one without callbacks=",
        )
    if not lm.cache and not lm.num_retries:
        return lm
    return lm.copy(cache=False, num_retries=0)


__all__ = ["ModelConnection", "check_model", "connect_model"]
