"""The command `models`: the providers that a model string can name, and what models can do. Nothing is contacted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import typer

from .command import command
from .output import Output, table

if TYPE_CHECKING:
    from ...agent import Settings
    from ...signatures.engines.providers import Provider

_PROVIDERS: Final = ("PREFIX", "KEY VARIABLE", "SET", "EXAMPLE", "ALSO NEEDS")
_ABILITIES: Final = ("MODEL", "NAME", "TOOLS", "IMAGES", "FILES", "JSON SCHEMA", "REASONING", "CONTEXT", "ANSWER")
_STATES: Final = {True: "yes", False: "no", None: "-"}
_KNOWN: Final = {True: "yes", False: "no", None: "?"}
_UNKNOWN: Final = "? is not known offline. The first call of such a model finds out whether it takes tools."

app = typer.Typer()


@command(app, panel="Configuration")
async def models(output: Output, which: list[str] | None = None) -> None:
    """List the providers of models that --lm and the setting lm can name, and what models can do.

    For each provider, it prints its prefix, the environment variable of its key, whether that is set, what else it
    needs, and an example. Keys are not printed, and nothing is contacted. For any other server that speaks OpenAI's
    chat protocol, use openai/MODEL with the setting api_base.

    For each model, it prints whether the model takes tools, images and documents, whether its answers can follow a
    JSON Schema, whether it reasons, and how many tokens its prompt and its answer can have. With MODEL, only this is
    printed.

    [bold]Examples[/bold]

      worldagent models

      worldagent models openai/gpt-4o anthropic/claude-sonnet-4-5 --json

    Args:
        which ([MODEL]...): Model strings, or names from the setting models. Default: list the providers, their examples
            and the models of the settings.
    """
    from ...agent import Settings
    from ...signatures.engines.providers import providers

    settings, known = Settings(), providers()
    if which:
        chosen = [(settings.models.get(name, name), name if name in settings.models else "") for name in which]
        shown = _abilities(chosen, settings, strict=True)
        output.result({"abilities": shown}, _shown(shown))
        return
    examples = [each.example for each in known if not each.api_base]
    named = [
        *([(settings.lm, "lm")] if settings.lm else []),
        *((model, name) for name, model in settings.models.items()),
    ]
    shown = _abilities([*named, ("local", ""), *((example, "") for example in examples)], settings, strict=False)
    output.result({"models": _providers(known), "abilities": shown}, f"{_provider_table(known)}\n\n{_shown(shown)}")


def _providers(providers: Sequence[Provider]) -> list[dict[str, Any]]:
    return [
        {
            "prefix": each.prefix,
            "variables": list(each.variables),
            "set": each.is_set(),
            "api_base": each.api_base,
            "needs": each.needs,
            "example": each.example,
        }
        for each in providers
    ]


def _provider_table(providers: Sequence[Provider]) -> str:
    rows = [
        (
            each.prefix,
            " or ".join(each.variables) or "none",
            _STATES[each.is_set()],
            each.example,
            each.needs.replace("`", "") or "-",
        )
        for each in providers
    ]
    return table(_PROVIDERS, rows)


def _abilities(models: Sequence[tuple[str, str]], settings: Settings, *, strict: bool) -> list[dict[str, Any]]:
    """What each model can do, with the name that the settings give it.

    Raises:
        ModelNotConfigured: A model string names no known service.
    """
    from ...signatures.engines.connect import Abilities, abilities_of

    # The setting `api_base` is the address of the agent's model, and of other models of the same vendor.
    vendor, slash, _ = (settings.lm or "").partition("/")
    vendor_prefix = f"{vendor}/" if settings.api_base and slash else None
    known = abilities_of((model for model, _ in models), strict=strict)
    return [
        {
            "model": model,
            "name": name,
            **asdict(Abilities() if vendor_prefix and model.startswith(vendor_prefix) else each),
        }
        for (model, name), each in zip(models, known, strict=True)
    ]


def _shown(models: Sequence[Mapping[str, Any]]) -> str:
    switches = ("tools", "images", "files", "json_schema", "reasoning")
    rows = [
        (
            each["model"],
            each["name"] or "-",
            *(_KNOWN[each[name]] for name in switches),
            *("?" if each[name] is None else f"{each[name]:,}" for name in ("context", "answer")),
        )
        for each in models
    ]
    note = f"\n\n{_UNKNOWN}" if any("?" in row for row in rows) else ""
    return f"{table(_ABILITIES, rows)}{note}"
