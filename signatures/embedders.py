"""Embedders of memory entries: a hosted model by its model string, and a `dspy.Embedder` over a function (M3).

dspy is imported where a value needs it: `Memory(embedder=...)` is checked before anything is opened.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core import Embedder
from ..core.errors import InvalidArgument, ModelNotConfigured, OutputInvalid
from .engines.providers import is_local

if TYPE_CHECKING:
    from .engines.http import HttpEngine
    from .predictor import ModelOptions


def checked_embedder(given: object) -> str | Embedder:
    """Return what `Memory(embedder=...)` names, with a `dspy.Embedder` as a function that can be awaited.

    Raises:
        InvalidArgument: It is none of what is allowed; the text says what to pass.
    """
    dspy: Any = sys.modules.get("dspy")  # a `dspy.Embedder` exists only where dspy was imported
    if dspy is not None and isinstance(given, dspy.Embedder):
        model: object = getattr(given, "model", None)
        if isinstance(model, str):
            raise InvalidArgument(
                f"a dspy.Embedder over the model string {model!r} would call litellm",
                remedy=f"pass the string itself: embedder={model!r}",
            )
        return _Wrapped(given, model)
    if isinstance(given, str) and not is_local(given) and all(given.partition("/")):
        return given
    if isinstance(given, str) or not isinstance(given, Embedder):
        shown = repr(given[:60]) if isinstance(given, str) else repr(type(given).__name__)
        raise InvalidArgument(
            f"`embedder` must be a model string or an async function of a list of texts, got {shown}",
            remedy="pass for example 'openai/text-embedding-3-small'",
        )
    return given


def name_of(embedder: str | Embedder) -> str:
    """The name that the stored vectors of an embedder belong to."""
    if isinstance(embedder, str):
        return embedder
    source: Any = embedder.model if isinstance(embedder, _Wrapped) else embedder
    name = getattr(source, "name", None)
    if isinstance(name, str) and name:
        return name
    named = source if hasattr(source, "__qualname__") else type(source)
    return f"{named.__module__}.{named.__qualname__}"


class _Wrapped:
    """A `dspy.Embedder` over a function. The function runs on a thread, and dspy caches nothing."""

    def __init__(self, source: Any, model: object) -> None:
        self._source = source
        self.model = model

    async def __call__(self, texts: list[str], /) -> Any:
        return await asyncio.to_thread(self._source, texts, caching=False)


class HostedEmbedder:
    """A model of embeddings at a service, with the connections, retries and rate limits of models. An `Embedder`.

    Args:
        model: The model string.
        engine: Its service.
        options: Time limits and retries.
    """

    def __init__(self, model: str, engine: HttpEngine, options: ModelOptions) -> None:
        from .engines.costs import RATE_LIMITERS

        self._model = model
        self._engine = engine
        self._options = options
        self._pace = RATE_LIMITERS.of_route(engine.route)

    async def __call__(self, texts: list[str], /) -> list[list[float]]:
        """Return the vectors of some texts.

        Raises:
            HostError, OutputInvalid: The service failed, or its answer has no vectors.
        """
        from .predictor import with_retries

        return await with_retries(lambda left: self._try(texts, left), self._options)

    async def aclose(self) -> None:
        """Release the connections."""
        await self._engine.aclose()

    async def _try(self, texts: list[str], left: float) -> list[list[float]]:
        from dspy.clients.errors import wrap_error
        from dspy.lm15 import LM15Error

        from .engines.classification import classify

        async with self._pace.place(left, backoff=self._options.backoff, model=self._model):
            try:
                async with asyncio.timeout(left):
                    return self._read(await self._engine.embed(texts))
            except LM15Error as error:
                wrapped = wrap_error(error, model=self._model)
                wrapped.__cause__ = error
                failure = classify(wrapped, model=self._model)
            except TimeoutError as error:
                failure = classify(error, model=self._model)
            raise failure  # outside of the handler, so that it has no context: the original can quote the texts

    def _read(self, answer: Any) -> list[list[float]]:
        data = answer.get("data") if isinstance(answer, Mapping) else None
        if isinstance(data, list) and all(isinstance(each, Mapping) and "embedding" in each for each in data):
            return [each["embedding"] for each in sorted(data, key=_index)]
        raise OutputInvalid(
            f"the model {self._model!r} answered with something other than embeddings",
            remedy="name a model of embeddings, at a server with OpenAI's protocol",
        )


async def open_embedder(model: str, *, api_base: str | None, options: ModelOptions) -> HostedEmbedder:
    """Prepare a model of embeddings for calls from the running event loop, without network access.

    Args:
        model: The model string.
        api_base: The address of its service, if not the usual one.
        options: Time limits and retries.

    Raises:
        ModelNotConfigured: The vendor is unknown, the key is missing, or the service has another protocol.
    """
    from .engines.http import open_http

    _, engine = await open_http(model, api_key=None, api_base=api_base)
    if engine.embeds():
        return HostedEmbedder(model, engine, options)
    await engine.aclose()
    raise ModelNotConfigured(
        f"the service of {model!r} has no embeddings in OpenAI's protocol",
        remedy="pass an async function of your own, or 'openai/MODEL' with the address of a server that has them",
    )


def _index(item: Mapping[str, Any]) -> int:
    index = item.get("index")
    return index if isinstance(index, int) else 0
