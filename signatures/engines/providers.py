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
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from ...core.errors import InvalidArgument

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

_AWS: Final = "`AWS_REGION`, and the AWS credentials of the machine where the key is not set"
_GCP: Final = "`GOOGLE_CLOUD_PROJECT` and the Google credentials of the machine"
_AZURE: Final = "`AZURE_OPENAI_RESOURCE` or `AZURE_OPENAI_ENDPOINT`"
_SERVER: Final = "a server at {}, or `api_base`"


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
    """

    prefix: str
    model: str
    variables: tuple[str, ...] = ()
    needs: str = ""
    engine: str = ""
    address: str = ""
    api_base: bool = False

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


PROVIDERS: Final = (
    Provider("openai", "gpt-4o", ("OPENAI_API_KEY",), engine="openai-chat"),
    Provider("anthropic", "claude-sonnet-4-5", ("ANTHROPIC_API_KEY",)),
    Provider("gemini", "gemini-2.5-flash", ("GEMINI_API_KEY", "GOOGLE_API_KEY")),
    Provider("xai", "grok-4", ("XAI_API_KEY",)),
    Provider("groq", "openai/gpt-oss-20b", ("GROQ_API_KEY",)),
    Provider("openrouter", "openai/gpt-4o", ("OPENROUTER_API_KEY",)),
    Provider("deepseek", "deepseek-chat", ("DEEPSEEK_API_KEY",)),
    Provider("zai", "glm-4.6", ("ZAI_API_KEY",)),
    Provider("moonshot", "kimi-k2.6", ("MOONSHOTAI_API_KEY", "MOONSHOT_API_KEY"), engine="moonshotai"),
    Provider("meta", "muse-spark", ("META_API_KEY",)),
    Provider("mistral", "mistral-small-latest", ("MISTRAL_API_KEY",), address="https://api.mistral.ai/v1"),
    Provider("cohere", "command-a-03-2025", ("COHERE_API_KEY",), address="https://api.cohere.ai/compatibility/v1"),
    Provider(
        "together_ai",
        "meta-llama/Llama-3.3-70B-Instruct-Turbo",
        ("TOGETHER_API_KEY",),
        address="https://api.together.xyz/v1",
    ),
    Provider(
        "fireworks_ai",
        "accounts/fireworks/models/gpt-oss-20b",
        ("FIREWORKS_API_KEY",),
        address="https://api.fireworks.ai/inference/v1",
    ),
    Provider("cerebras", "gpt-oss-120b", ("CEREBRAS_API_KEY",), address="https://api.cerebras.ai/v1"),
    Provider("perplexity", "sonar", ("PERPLEXITY_API_KEY",), address="https://api.perplexity.ai"),
    Provider(
        "deepinfra",
        "meta-llama/Llama-3.3-70B-Instruct",
        ("DEEPINFRA_API_KEY",),
        address="https://api.deepinfra.com/v1/openai",
    ),
    Provider(
        "nvidia_nim", "meta/llama-3.3-70b-instruct", ("NVIDIA_API_KEY",), address="https://integrate.api.nvidia.com/v1"
    ),
    Provider("sambanova", "Meta-Llama-3.3-70B-Instruct", ("SAMBANOVA_API_KEY",), address="https://api.sambanova.ai/v1"),
    Provider("huggingface", "openai/gpt-oss-20b", ("HF_TOKEN",), address="https://router.huggingface.co/v1"),
    Provider("azure", "my-deployment", ("AZURE_OPENAI_API_KEY",), _AZURE, engine="azure-chat"),
    Provider("azure-anthropic", "claude-sonnet-4-5", ("ANTHROPIC_FOUNDRY_API_KEY",), "`ANTHROPIC_FOUNDRY_RESOURCE`"),
    Provider("bedrock-chat", "openai.gpt-oss-20b-1:0", ("AWS_BEARER_TOKEN_BEDROCK",), _AWS),
    Provider("bedrock-anthropic", "anthropic.claude-opus-4-7", ("AWS_BEARER_TOKEN_BEDROCK",), _AWS),
    Provider(
        "aws-anthropic",
        "claude-sonnet-4-5",
        ("ANTHROPIC_AWS_API_KEY",),
        "`AWS_REGION` and `ANTHROPIC_AWS_WORKSPACE_ID`",
    ),
    Provider("vertex", "gemini-2.5-flash", needs=_GCP),
    Provider("vertex-anthropic", "claude-sonnet-4-5", needs=_GCP),
    Provider("vertex-express", "gemini-2.5-flash", ("GOOGLE_API_KEY",)),
    Provider("ollama", "llama3.2", needs=_SERVER.format("localhost:11434")),
    Provider("vllm", "my-model", needs=_SERVER.format("localhost:8000")),
    Provider("sglang", "my-model", needs=_SERVER.format("localhost:30000")),
    Provider("lm_studio", "my-model", needs=_SERVER.format("localhost:1234"), address="http://localhost:1234/v1"),
    Provider(
        "openai",
        "MODEL",
        ("OPENAI_API_KEY",),
        "`api_base`: any server that speaks OpenAI's chat protocol; the key only if the server asks for one",
        engine="openai-chat",
        api_base=True,
    ),
)
"""All providers, in the order in which people see them."""

_FIRST_PARTY: Final = frozenset(
    {
        *("anthropic", "aws-anthropic", "azure-anthropic", "bedrock-anthropic", "vertex-anthropic"),
        *("gemini", "vertex", "vertex-express"),
        *("openai", "openai-chat"),
        *("cohere", "deepseek", "meta", "mistral", "moonshotai", "xai", "zai"),
    }
)
"""The engine's names of services with models of one vendor, which all support tools. Others serve any model."""

Schemas = Literal["never", "alone", "beside"]
"""Whether a service can hold an answer to a JSON Schema: never, alone, or also beside tools."""

_SCHEMAS: Final[dict[str, Schemas]] = {
    **dict.fromkeys(("openai", "openai-chat", "azure-chat", "xai", "gemini", "vertex", "vertex-express"), "beside"),
    **dict.fromkeys((each for each in _FIRST_PARTY if each.endswith("anthropic")), "beside"),
    **dict.fromkeys(("groq", "openrouter", "mistral", "together-ai", "fireworks-ai", "cerebras"), "alone"),
    **dict.fromkeys(("sambanova", "deepinfra", "huggingface", "ollama", "vllm", "sglang", "lm-studio"), "alone"),
}
"""By the engine's names of services; the others take no schema, or do not hold an answer to it."""

_OTHER_SPELLINGS: Final = {
    "bedrock": "write 'bedrock-chat/MODEL' (OpenAI's chat protocol) or 'bedrock-anthropic/MODEL' (Claude)",
    "vertex_ai": "write 'vertex/MODEL' (Gemini) or 'vertex-anthropic/MODEL' (Claude)",
    "google": "write 'gemini/MODEL', or 'vertex/MODEL' for Google Cloud",
    "together": "did you mean 'together_ai/{}'?",
}
_ANY_SERVER: Final = "a server that speaks OpenAI's chat protocol is 'openai/MODEL' with `api_base`"


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
        for each in PROVIDERS
        if each.address
    )


def engine_string(model: str) -> str:
    """Return the model string in the engine's format. One that names no provider of the table is returned unchanged."""
    prefix, slash, rest = model.partition("/")
    name = prefix.replace("_", "-")
    found = next((each for each in PROVIDERS if name == each.prefix.replace("_", "-")), None)
    return f"{found.id}:{rest}" if slash and rest and found is not None else model


def setup(provider: str) -> str:
    """Return the settings that a provider needs in addition to its key, by the engine's name of it; empty if none."""
    found = next((each for each in PROVIDERS if each.id == provider), None)
    if found is None or not found.needs:
        return ""
    key = f"`{'` or `'.join(found.variables)}`; also " if found.variables and not found.is_set() else ""
    return f"set {key}{found.needs}"


def first_party(provider: str) -> bool:
    """Return whether a service only has models of one vendor, by the engine's name of it."""
    return provider in _FIRST_PARTY


def schemas(provider: str, *, own: bool) -> Schemas:
    """Return whether a service can hold an answer to a JSON Schema, by the engine's name of it.

    It can lack this for one model; then it refuses the first request with one.

    Args:
        provider: The engine's name.
        own: Whether it is a server at a custom address. Most of those enforce a schema by keeping a model from
            anything else, tools included.
    """
    return "alone" if own else _SCHEMAS.get(provider, "never")


def advice(model: str) -> str:
    """Return a suggestion for a model string that names no provider."""
    prefix, _, rest = model.partition("/")
    other = _OTHER_SPELLINGS.get(prefix.replace("-", "_").lower(), "").format(rest)
    close = get_close_matches(prefix.lower().replace("-", "_"), [each.prefix for each in PROVIDERS], n=1, cutoff=0.75)
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
