"""The providers that a model string can name: one table for routing, errors, the command `models` and the docs.

dspy's engine has most of them. Those with an `address` are declared here; they use OpenAI's chat protocol. Addresses
and names of models are checked here too. Nothing is contacted, and dspy is loaded only when it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from ...core.errors import InvalidArgument
from ...core.files import packaged_table

if TYPE_CHECKING:
    import dspy
    from dspy.lm15 import ProviderDefinition

ADDRESS_REMEDY: Final = "write it as http://localhost:8000/v1, with the /v1 where the server has one"


def address_problem(address: str) -> str | None:
    """Return the problem of an `api_base`, with its address but without any name, password or key; None if it is valid.

    Args:
        address: The address to check.
    """
    shown = address.rpartition("@")[2].partition("?")[0].partition("#")[0]
    try:
        parts = urlsplit(address)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port, or half an IPv6 address
        fits = False
    if fits and address.isprintable() and " " not in address:
        return None
    return f"the address must begin with http:// or https:// and have a host, got {shown!r}"


HEADERS: Final[ContextVar[Mapping[str, str] | None]] = ContextVar("worldagent_headers", default=None)
"""The additional headers of the running call, by names in lower case."""


@contextmanager
def sending(headers: Mapping[str, str]) -> Generator[None]:
    """Send these headers with the calls in the block."""
    before = HEADERS.set(headers)
    try:
        yield
    finally:
        HEADERS.reset(before)


# --- the table --------------------------------------------------------------------------------------------------------

LOCAL: Final = "local"
"""The model string of the embedded model; after a colon it can name another file."""

Schemas = Literal["never", "alone", "beside"]
"""Whether a service can hold an answer to a JSON Schema: never, alone, or also beside tools."""


@dataclass(frozen=True)
class Provider:
    """A provider and its address and credentials.

    Attributes:
        prefix: The beginning of its model strings, before the slash.
        model: An example of its models.
        variables: The environment variables for the key; the first one that is set counts. Empty if no key is needed.
        needs: Other required settings, for people.
        engine: The engine's name of it, if it is not the prefix.
        address: Its address, for a provider that the engine lacks.
        api_base: Whether the setting `api_base` must give its address.
        also: Another name that the engine has for it, of another protocol.
        first_party: Whether all its models are of one vendor, and so support tools. Others serve any model.
        schemas: Whether it can hold an answer to a JSON Schema. It can lack this for one model; then it refuses the
            first request with one.
        listed: Its name in the list of models, if it is not the engine's.
        reasoning_apart: Whether the tokens of its output do not include those of reasoning.
        tools: The tools that it runs itself; None is all that its protocol has.
    """

    prefix: str
    model: str
    variables: tuple[str, ...] = ()
    needs: str = ""
    engine: str = ""
    address: str = ""
    api_base: bool = False
    also: str = ""
    first_party: bool = False
    schemas: Schemas = "never"
    listed: str = ""
    reasoning_apart: bool = False
    tools: frozenset[str] | None = None

    @property
    def id(self) -> str:
        """The engine's name of the provider."""
        return self.engine or self.prefix.replace("_", "-")

    @property
    def example(self) -> str:
        """A model string."""
        return f"{self.prefix}/{self.model}"

    def is_set(self) -> bool | None:
        """Whether a key is in the environment; None if it needs none."""
        return any(os.environ.get(name) for name in self.variables) if self.variables else None


_UNKNOWN: Final = Provider("", "")
_ANY_SERVER: Final = "a server that speaks OpenAI's chat protocol is 'openai/MODEL' with `api_base`"


def _table() -> Mapping[str, Any]:
    return packaged_table(__package__, "providers.toml")


@cache
def providers() -> tuple[Provider, ...]:
    """All providers, in the order in which people see them."""
    lists = {"variables": tuple, "tools": frozenset}
    return tuple(
        Provider(**{name: lists.get(name, type(value))(value) for name, value in each.items()})
        for each in _table()["provider"]
    )


@cache
def known_provider(name: str) -> Provider:
    """The provider with the engine's name; if there is none, one of which nothing is known."""
    return next((each for each in providers() if name in (each.id, each.also)), _UNKNOWN)


def is_local(model: str) -> bool:
    """Whether this model string names the embedded model."""
    return model == LOCAL or model.startswith(f"{LOCAL}:")


@cache
def declared() -> tuple[ProviderDefinition, ...]:
    """The providers that the engine lacks, in the engine's format."""
    from dspy.lm15 import AccessPolicy, EndpointSupport, OpenAIChatCompat, ProviderDefinition

    supports = EndpointSupport(complete=True, stream=True)
    # The most conservative reading of the protocol: only fields that all of these servers support.
    compat = OpenAIChatCompat.preset("lmstudio")
    return tuple(
        ProviderDefinition.chat(
            AccessPolicy(
                provider=each.id,
                supports=supports,
                auth_modes=("bearer",),
                env_keys=each.variables,
                base_url=each.address,
            ),
            compat=compat,
            placeholder_key=None if each.variables else "none",
        )
        for each in providers()
        if each.address
    )


def engine_string(model: str) -> str:
    """Return the model string in the engine's format. One that names no provider of the table is returned unchanged."""
    prefix, slash, rest = model.partition("/")
    name = prefix.replace("_", "-")
    found = next((each for each in providers() if name == each.prefix.replace("_", "-")), None)
    return f"{found.id}:{rest}" if slash and rest and found is not None else model


def setup(provider: str) -> str:
    """Return the settings that a provider needs in addition to its key, by the engine's name of it; empty if none."""
    found = known_provider(provider)
    key = f"`{'` or `'.join(found.variables)}`; also " if found.variables and not found.is_set() else ""
    return f"set {key}{found.needs}" if found.needs else ""


def advice(model: str) -> str:
    """Return a suggestion for a model string that names no provider."""
    prefix, _, rest = model.partition("/")
    other = _table()["other_spellings"].get(prefix.replace("-", "_").lower(), "").format(rest)
    close = get_close_matches(prefix.lower().replace("-", "_"), [each.prefix for each in providers()], n=1, cutoff=0.75)
    if not other and close and rest:
        other = f"did you mean '{close[0]}/{rest}'?"
    return "; ".join(filter(None, (other, "see `worldagent models` for the providers that work", _ANY_SERVER)))


def check_named(models: Mapping[str, str | dspy.BaseLM]) -> dict[str, str | dspy.BaseLM]:
    """Return models by name, after checking them.

    Raises:
        InvalidArgument: A name has a slash or is empty, or a model is neither a text nor a `dspy.LM`.
    """
    for name, model in models.items():
        if not isinstance(name, str) or not name.strip() or "/" in name or is_local(name):
            raise InvalidArgument(f"{name!r} cannot name a model", remedy="use a text without '/' that is not 'local'")
        if not isinstance(model, str) and not _is_lm(model):
            raise InvalidArgument(
                f"the model {name!r} must be a model string or a dspy.LM, got {type(model).__name__!r}",
                remedy="pass one of these",
            )
    return dict(models)


def _is_lm(model: object) -> bool:
    import dspy

    return isinstance(model, dspy.BaseLM)
