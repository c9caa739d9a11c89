"""Models by name. Each is opened at its first use and closed with the agent.

A name is one that the host gave to a model, or a model string. Callers decide which model is tried next if one cannot
be reached; this module calls no model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import dspy

from ..core.errors import ModelNotConfigured
from .engines import is_local
from .predictor import ModelCaller, OnError, open_model


class Models:
    """The models of one agent.

    Args:
        own: The agent's own model, which is closed by the code that opened it.
        named: Models by the names that the host gave them.
        api_base: The service address of the agent's own model string. Other models of the same vendor use it too.
        on_error: Receives the original exception of a model error.
    """

    def __init__(
        self,
        own: ModelCaller,
        named: Mapping[str, str | dspy.BaseLM] | None = None,
        *,
        api_base: str | None = None,
        on_error: OnError | None = None,
    ) -> None:
        self._own = own
        self._named = dict(named or {})
        self._api_base = api_base
        self._on_error = on_error
        self._open: dict[str, asyncio.Task[ModelCaller]] = {}

    def check(self, name: str, *, who: str) -> None:
        """Refuse a name that no model can have. No model is opened.

        Args:
            name: The name of the model.
            who: The user of the model, for the error.

        Raises:
            ModelNotConfigured: The name is neither a model string nor the name of a model.
        """
        if name not in self._named and "/" not in name and not is_local(name):
            known = ", ".join(sorted(self._named)) or "none"
            raise ModelNotConfigured(
                f"{who} wants the model {name!r}, which is neither a model string nor the name of a model",
                remedy=f"write 'vendor/model' or the name of one of the agent's models; the names are: {known}",
            )

    async def get(self, name: str) -> ModelCaller:
        """Return the model called `name`, and open it if needed.

        Raises:
            ModelNotConfigured, MissingExtra, InvalidArgument: The model cannot be used.
        """
        found = self._open.get(name)
        if found is None or (found.done() and (found.cancelled() or found.exception() is not None)):
            found = self._open[name] = asyncio.create_task(self._opened(name))
        return await asyncio.shield(found)  # another caller can wait for it too

    def tuned(
        self, caller: ModelCaller, *, name: str | None, generation: Mapping[str, Any], headers: Mapping[str, str]
    ) -> ModelCaller:
        """Return a model with options that override its own.

        Args:
            caller: The model.
            name: The model that the headers are for; None is the agent's own. Headers can be secrets, so a model of
                another vendor, such as a fallback, does not get them.
            generation: The generation settings.
            headers: Headers for the service.
        """
        target = None if name is None else self._named.get(name, name)
        vendor = target.partition("/")[0] if isinstance(target, str) else self._own.vendor if name is None else None
        more = headers if caller.vendor == vendor else {}
        return replace(caller, generation={**caller.generation, **generation}, headers={**caller.headers, **more})

    async def aclose(self) -> None:
        """Close the models that were opened here."""
        opened, self._open = self._open, {}
        for opening in opened.values():
            opening.cancel()
        for result in await asyncio.gather(*opened.values(), return_exceptions=True):
            if isinstance(result, ModelCaller):
                await result.aclose()

    async def _opened(self, name: str) -> ModelCaller:
        target = self._named.get(name, name)
        base = self._api_base if isinstance(target, str) and self._is_vendors(target) else None
        return await open_model(
            target,
            api_base=base,
            options=self._own.options,
            generation=self._own.generation,
            headers=self._own.headers if isinstance(target, str) and self._is_vendors(target) else None,
            on_error=self._on_error,
        )

    def _is_vendors(self, target: str) -> bool:
        return target.partition("/")[0] == self._own.vendor
