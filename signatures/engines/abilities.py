"""The abilities of models, for people who choose one. No service is contacted, and no call depends on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...core.errors import ModelNotConfigured
from .costs import listed_models
from .http import find_route
from .providers import is_local

_VENDORS: Final = {
    "azure-anthropic": "azure_ai",
    "bedrock-anthropic": "bedrock",
    "bedrock-chat": "bedrock",
    "moonshotai": "moonshot",
    "openai-chat": "openai",
    "vertex-anthropic": "vertex_ai",
    "vertex-express": "vertex_ai",
    "vertex": "vertex_ai",
}
"""The names in the list for services that have another name in the engine."""


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
    vendor = _VENDORS.get(route.provider, route.provider.replace("-", "_"))
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


__all__ = ["Abilities", "abilities_of"]
