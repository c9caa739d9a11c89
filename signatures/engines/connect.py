"""One model for one agent: from what the developer wrote to an LM that can be called and closed.

Not here: the engines (`http`, `local`) and what their failures mean (`classify`).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import dspy

from ...core.errors import InvalidArgument
from ..media import MediaKind
from .http import HttpEngine, Route, open_http
from .pace import PACES, Pace
from .providers import LOCAL, first_party, is_local

_MISTRAL = "mistral"
_GPT = re.compile(r"(?:ft:)?gpt-(?!35)(\d+)(?:\.(\d+))?(?!\w)")  # Azure calls gpt-3.5 so


async def _nothing() -> None:
    return


@dataclass(slots=True)
class ToolSupport:
    """What a service takes by its own means; None until it was tried.

    Attributes:
        known: Whether it takes tools.
        then_user: Whether it takes a message of a user after the results of calls.
    """

    known: bool | None = None
    then_user: bool | None = None


_SUPPORT: dict[tuple[str, str, str | None], ToolSupport] = {}  # what was found out of services, for the whole process


@dataclass(frozen=True, slots=True, kw_only=True)
class Caching:
    """What a service can be told about keeping the beginning of a prompt.

    Attributes:
        key: Whether it takes a key, by which prompts with one beginning come to one place.
        mark: Whether it takes a mark at the end of what is to be kept.
        own: Whether it is a server at an address of one's own, which may know nothing of it.
    """

    key: bool = False
    mark: bool = False
    own: bool = False


@dataclass(frozen=True, kw_only=True)
class ModelConnection:
    """The model of one agent, for as long as the agent is open.

    Attributes:
        lm: What goes into `dspy.context(lm=...)`. It never caches and never retries.
        name: For people: the model string, or `local`.
        plain: Whether this is the embedded model, which gets the plain-text adapter.
        weights: The embedded model's file, for its control tokens; None otherwise.
        max_tokens: How long an answer may be where a call does not say; None leaves it to the service.
        context: How many tokens prompt and answer have together, where that is known.
        takes: What it may take beside text.
        tools: What it takes of tools by its service's own means. What is found out is written here.
        cache: What its service can be told about keeping prompts; None is nothing.
        pace: How fast it may be called; all of the process that call the same model share it.
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
    pace: Pace = field(default_factory=Pace, repr=False, compare=False)
    close: Callable[[], Awaitable[None]] = field(default=_nothing, repr=False, compare=False)

    async def aclose(self) -> None:
        """Release sockets, threads and memory. A second time does nothing; an LM of the user's stays open."""
        await self.close()


async def connect_model(
    lm: str | dspy.BaseLM, *, api_key: str | None = None, api_base: str | None = None
) -> ModelConnection:
    """Make a model ready to be called from the running event loop. A hosted one is not contacted.

    Args:
        lm: A model string such as `openai/gpt-4o`; `local` for the embedded model (`local:PATH` for another GGUF file);
            or a `dspy.LM`, which is used through a copy that neither caches (R7, D11) nor retries, and is never closed.
        api_key: The key for a model string; without it the service's environment variable is read.
        api_base: The address for a model string; a server given by its address needs no key.

    Raises:
        InvalidArgument: `lm` is neither, carries callbacks of its own (they would see the prompt, R7), or comes with a
            key or address that cannot take effect.
        ModelNotConfigured: No such vendor, no key, or no weights.
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
            pace=PACES.of_route(engine.route),
            close=engine.aclose,
        )
    if api_key is not None or api_base is not None:
        raise InvalidArgument(
            "a key and an address have no effect on this model", remedy="pass them with a model string only"
        )
    if isinstance(lm, dspy.BaseLM):
        return ModelConnection(
            lm=_without_traces(lm), name=lm.model, tools=ToolSupport(_has_tools(lm)), pace=PACES.of_lm(lm)
        )
    if not isinstance(lm, str) or not lm:
        raise InvalidArgument(
            f"lm= is {type(lm).__name__!r}" if not isinstance(lm, str) else "lm= is empty",
            remedy="pass a model string such as 'openai/gpt-4o', 'local', or a dspy.LM",
        )
    return await _connect_local(_path(lm))


async def check_model(lm: str, *, api_base: str | None = None) -> None:
    """Refuse a model string that `connect_model` would refuse. Nothing is contacted, and no weights are loaded.

    Raises:
        ModelNotConfigured, MissingExtra: As from `connect_model`, but for weights that are there and cannot be loaded.
    """
    if is_local(lm):
        from .local import find_weights

        find_weights(_path(lm))
        return
    _, engine = await open_http(lm, api_key=None, api_base=api_base)
    await engine.aclose()


def _path(model: str) -> str | None:
    """The file that a model string of the embedded model names."""
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
    """What is known of a service's tools. One that serves any model, or a server of the user's, is tried once."""
    route = engine.route
    known = engine.tools() if route.api_base is None and first_party(route.provider) else None
    support = ToolSupport(known, then_user=False if route.provider == _MISTRAL else None)
    return _SUPPORT.setdefault((route.provider, route.model, route.api_base), support)


def _caching(route: Route) -> Caching | None:
    """What lm15 can tell this service. OpenAI refuses a mark for models before gpt-5.6."""
    vendor, own = route.provider.removesuffix("-chat").removesuffix("-responses"), route.api_base is not None
    if vendor == "anthropic":
        return Caching(mark=True, own=own)
    if vendor == "openai":
        version = _GPT.match(route.model)
        return Caching(key=True, mark=version is not None and tuple(map(int, version.groups("0"))) >= (5, 6), own=own)
    return None


def _has_tools(lm: dspy.BaseLM) -> bool | None:
    """Whether an engine of the user's says that it takes tools. An LM that dspy connects is tried once."""
    engine = getattr(lm, "engine", None)
    if isinstance(engine, str):
        return None
    return getattr(engine, "supports_function_calling", False) is True


def _without_traces(lm: dspy.BaseLM) -> dspy.BaseLM:
    """Return `lm` as it may be called with a role: no callbacks, no answers kept, no retries beside ours."""
    if lm.callbacks:
        raise InvalidArgument(
            f"the dspy.LM {lm.model!r} carries callbacks, which would see every prompt",
            remedy="pass one without callbacks=",
        )
    if not lm.cache and not lm.num_retries:
        return lm
    return lm.copy(cache=False, num_retries=0)


__all__ = ["ModelConnection", "check_model", "connect_model"]
