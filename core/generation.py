"""What a model call is asked for and what it uses: generation options, and tokens and cost."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator
from pydantic_core import PydanticCustomError

from .checks import NO_VARIABLES, has_variable

ReasoningEffort = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
ReasoningSummary = Literal["auto", "concise", "detailed"]

WEB_SEARCH: Final = "web_search"
WEB_FETCH: Final = "web_fetch"
CODE_EXECUTION: Final = "code_execution"
FILE_SEARCH: Final = "file_search"
SERVICE_TOOLS: Final = (WEB_SEARCH, WEB_FETCH, CODE_EXECUTION, FILE_SEARCH)
"""The tools that services of models run themselves, by their names here."""

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_MAX_VALUE_LENGTH: Final = 8192  # characters of a value; servers refuse more
_RESERVED_HEADERS: Final = frozenset(
    {
        *("accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect"),
        *("host", "te", "trailer", "transfer-encoding", "upgrade"),
        # API keys come from the environment, so that a file cannot replace them.
        *("api-key", "authorization", "proxy-authorization", "x-api-key", "x-goog-api-key"),
    }
)


class GenerationOptions(BaseModel):
    """How a model generates its answers. An option that is not set has the service's default.

    Attributes:
        temperature: How much the answers vary, 0 to 2.
        top_p: The share of likely tokens that are sampled from, above 0 and at most 1.
        max_tokens: The longest answer, in tokens.
        seed: Makes answers repeatable if the service supports it.
        reasoning_effort: How much the model reasons before it answers. A service refuses a level that it does not know.
        reasoning_summary: Asks the service to show the model's reasoning, briefly or in detail. OpenAI refuses this for
            organisations that are not verified.
        headers: Headers for the service, such as an organisation's id, by their names in lower case; never shown.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, strict=True)

    temperature: float | None = Field(
        default=None, ge=0, le=2, allow_inf_nan=False, description="How much the answers vary"
    )
    top_p: float | None = Field(
        default=None, gt=0, le=1, allow_inf_nan=False, description="The share of likely tokens that are sampled from"
    )
    max_tokens: int | None = Field(default=None, ge=1, description="The longest answer, in tokens")
    seed: int | None = Field(default=None, description="Makes answers repeatable where the service can")
    reasoning_effort: ReasoningEffort | None = Field(
        default=None, description="How much the model thinks before it answers"
    )
    reasoning_summary: ReasoningSummary | None = Field(
        default=None, description="Asks the service to show what the model thinks"
    )
    headers: dict[str, SecretStr] | None = Field(
        default=None, description="Headers for the model's service, by name; they are never shown"
    )

    @field_validator("headers")
    @classmethod
    def _sendable(cls, given: dict[str, SecretStr] | None) -> dict[str, SecretStr] | None:
        found: dict[str, SecretStr] = {}
        for name, value in (given or {}).items():
            text, key = value.get_secret_value(), name.lower()
            if not _NAME.fullmatch(name) or key in found:
                raise PydanticCustomError(
                    "header", "header names must be valid and given once; write each as in HTTP, such as X-Org"
                )
            if key in _RESERVED_HEADERS:
                raise PydanticCustomError(
                    "header",
                    "the header '{name}' is set by worldagent; leave it out, and give keys in the environment",
                    {"name": key},
                )
            if not (text.isascii() and text.isprintable() and text == text.strip() and len(text) <= _MAX_VALUE_LENGTH):
                raise PydanticCustomError(
                    "header",
                    "the value of the header '{name}' is not valid; give up to {most} ASCII characters on one line",
                    {"name": key, "most": _MAX_VALUE_LENGTH},
                )
            if has_variable(text):
                raise PydanticCustomError(
                    "header",
                    "the value of the header '{name}' has a variable, and {why}; write the value itself, or take it "
                    "from the environment in code",
                    {"name": key, "why": NO_VARIABLES},
                )
            found[key] = value
        return None if given is None else found

    def over(self, other: GenerationOptions) -> GenerationOptions:
        """Return these options, completed with those of `other`. Headers are merged name by name."""
        headers = {**(other.headers or {}), **(self.headers or {})}
        merged: dict[str, Any] = {**other.sent(), **self.sent(), "headers": headers or None}
        return GenerationOptions(**merged)

    def sent(self) -> dict[str, Any]:
        """The options for the body of a request, by the names that dspy uses."""
        return self.model_dump(exclude_none=True, exclude={"headers"})

    def revealed_headers(self) -> dict[str, str]:
        """The headers as they are sent."""
        return {name: value.get_secret_value() for name, value in (self.headers or {}).items()}


# --- usage ------------------------------------------------------------------------------------------------------------

ECHO_RUN: Final = 40
"""Characters in a row that count as repeating a role (R16), for the echo guard and the leak scanner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUsage:
    """Tokens and cost of model calls. A value that a service does not report is None, and so is any sum with it.

    Attributes:
        calls: How many model calls.
        input_tokens: Tokens sent, including those that the service had cached.
        output_tokens: Tokens received, including reasoning tokens.
        cached_tokens: Input tokens that the service read from its cache.
        reasoning_tokens: Output tokens that are reasoning, if the service counts them.
        cost: The cost in US dollars.
        service_calls: How often services ran tools of their own, which most bill apart from tokens.
    """

    calls: int = 0
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = 0.0
    service_calls: int = 0

    def __add__(self, other: ModelUsage) -> ModelUsage:
        return ModelUsage(  # written out, because each model call adds to the sums of its turn several times
            calls=self.calls + other.calls,
            input_tokens=summed((self.input_tokens, other.input_tokens)),
            output_tokens=summed((self.output_tokens, other.output_tokens)),
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost=None if self.cost is None or other.cost is None else self.cost + other.cost,
            service_calls=self.service_calls + other.service_calls,
        )


class Purse(Protocol):
    """Pays for model calls from a budget that others share (A16)."""

    async def reserve(
        self, tokens: int, cost: float | None, *, model: str
    ) -> Callable[[tuple[int, float] | None], Awaitable[None]]:
        """Reserve the most that one model call can use, before it is made.

        Args:
            tokens: The most tokens.
            cost: The most US dollars; None if the model has no known price.
            model: The name of the model, for errors.

        Returns:
            What is called with the tokens and the cost that the call used once it is over, or with None if they are not
            known: then they stay reserved.

        Raises:
            BudgetReached: It is more than is left, and the call must not be made.
            BudgetInvalid: There is a limit in dollars, and no price.
        """
        ...

    async def spend(self, tokens: int, *, model: str) -> None:
        """Count what a model call used whose most is not known before it, such as that of a chat model of LangChain.

        Raises:
            BudgetReached: Nothing is left, so no further call must be made. It is counted.
            BudgetInvalid: There is a limit in dollars, and no price.
        """
        ...


def summed(counts: Iterable[int | None]) -> int | None:
    """The sum; None if one of the counts is None."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
