"""The models of an agent by name, the predictors of its Signatures, and what a model requests or answers at a step.

A name is one that the host gave to a model, or a model string. This module checks and executes no call; `graphs` does
that, and decides which model is tried next if one cannot be reached.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import dspy
from dspy.lm15 import Message

from ..core.errors import FunctionInvalid, ModelNotConfigured, NameTaken
from .adapter import Signature, answer_field, further_fields
from .calling import CALLS, OfferedTools, ToolCall
from .engines.providers import is_local
from .media import MEDIA_FIELDS
from .predictor import Answer, ModelCaller, OnError, Predictor, open_model


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


# --- predictors -------------------------------------------------------------------------------------------------------

_VARIANTS = 64


class PredictorPool:
    """The predictors of one agent."""

    def __init__(self) -> None:
        self._made: dict[Signature, Predictor] = {}
        self._named: dict[str, Signature] = {}  # the last variant
        self._varied: OrderedDict[tuple[Signature, str | None, tuple[str, ...]], Predictor] = OrderedDict()

    def add(self, *variants: Predictor | Signature) -> None:
        """Register a Signature. Several variants for the same task share one name.

        Raises:
            NameTaken: Another Signature has the name, and then `applies_to` of a role would be ambiguous.
            FunctionInvalid: A Signature cannot carry a role.
        """
        made = [given if isinstance(given, Predictor) else Predictor(given) for given in variants]
        for predictor in made:
            if self._named.get(predictor.name, predictor.declared) is not predictor.declared:
                raise NameTaken(f"two Signatures or workers are called {predictor.name!r}", remedy="rename one of them")
        self._made.update({predictor.declared: predictor for predictor in made})
        self._named.update({predictor.name: predictor.declared for predictor in made})

    def remove(self, name: str) -> None:
        """Remove a Signature that has no variants, and its predictors."""
        self._made.pop(self._named.pop(name))
        for key in [key for key in self._varied if key[0].__name__ == name]:
            del self._varied[key]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all Signatures."""
        return tuple(self._named)

    def named(self, name: str) -> Predictor | None:
        """The predictor whose Signature is called `name`; the last one added if there are variants."""
        return self._made[self._named[name]] if name in self._named else None

    def use_programs(self, programs: Mapping[str, dspy.Module | str | os.PathLike[str]]) -> None:
        """Replace predictors by optimised programs without a role (R12, D19).

        Args:
            programs: By the Signature's name, a program or the JSON file of a saved one.

        Raises:
            FunctionInvalid: No Signature has the name, the file cannot be read, or the program has other fields or code
                of its own.
        """
        for name, program in programs.items():
            made = self.named(name)
            if made is None:
                known = ", ".join(self.names)
                raise FunctionInvalid(f"no Signature is called {name!r}", remedy=f"the Signatures are: {known}")
            self._made[self._named[name]] = made.optimised(program)

    def copy(self) -> PredictorPool:
        """Another pool with the same predictors."""
        made = PredictorPool()
        made._made.update(self._made)
        made._named.update(self._named)
        return made

    def get(self, signature: Signature, prompt: str | None = None, inputs: Iterable[str] = ()) -> Predictor:
        """The predictor of `signature`.

        Args:
            signature: The Signature.
            prompt: Added to its instructions.
            inputs: The names of the inputs that it gets. It can have `MEDIA_FIELDS` as additional ones.

        Raises:
            FunctionInvalid: The Signature cannot carry a role.
        """
        media = tuple(name for name in MEDIA_FIELDS if name in inputs and name not in signature.input_fields)
        if prompt is None and not media and signature in self._made:
            return self._made[signature]
        key = (signature, prompt, media)
        if key not in self._varied:
            made = self._made.get(signature) or Predictor(signature)
            made = made if prompt is None else made.prompted(prompt)
            self._varied[key] = made.with_media(media) if media else made
        self._varied.move_to_end(key)
        while len(self._varied) > _VARIANTS:
            self._varied.popitem(last=False)
        return self._varied[key]


# --- one step ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """The result of a model at one step.

    Attributes:
        calls: The names and arguments of the calls that it requests.
        answer: Its answer, or its text next to calls: a text, or JSON if the Signature declares it.
        outputs: The further output fields of the answer, if the Signature has any; None for one that is missing.
        message: Its own message, for the next step; see `Answer`.
    """

    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    answer: Any = None
    outputs: Mapping[str, Any] = field(default_factory=dict)
    message: Message | None = field(default=None, repr=False)

    @classmethod
    def of(cls, answer: Answer, signature: Signature, tools: OfferedTools, *, final: bool) -> Self:
        """Read the answer of a predictor.

        Args:
            answer: The answer.
            signature: The entry Signature.
            tools: The tools that the model could call.
            final: Whether it had to answer, so that calls do not count.
        """
        asked = [each for each in answer.fields.get(CALLS) or () if isinstance(each, ToolCall)]
        names = [tools.names.get(each.tool.strip(), each.tool.strip()) for each in asked]
        calls = tuple((name, dict(each.arguments)) for name, each in zip(names, asked, strict=True))
        given = answer.fields[answer_field(signature) or ""]
        further = further_fields(signature)
        outputs = {name: answer.fields[name] for name in further} if further else {}
        return cls(calls=() if final else calls, answer=given, outputs=outputs, message=answer.message)
