"""From what a model call raised to the error that a turn may keep (D5).

Not here: retries (the caller looks at `retryable` and `retry_after`) and the hook that hands an embedder the original.
Providers echo prompts in their messages, so nothing of the original's text is read, only its type and numbers.
"""

from __future__ import annotations

from collections.abc import Callable

from dspy.utils import exceptions as dspy_errors

from ...core.errors import (
    AgentClosed,
    ContextExceeded,
    ModelNotConfigured,
    ModelRateLimited,
    ModelRefused,
    ModelTimeout,
    ModelUnavailable,
    OutputInvalid,
    WorldAgentError,
)
from ._engine_errors import EngineClosed, PromptTooLong

_Make = Callable[[str, BaseException], WorldAgentError]
_Kind = type[WorldAgentError]


def classify(error: BaseException, *, model: str) -> WorldAgentError:
    """Return the typed error that stands for `error`, fresh and without its text. Raise it outside the `except` block.

    Args:
        error: What a call of a predictor or a model raised. An error of this package is returned as it is; of an
            exception group the first member counts.
        model: The model's name, for the text.

    Raises:
        BaseException: `error` itself where it is no failure but an order to stop (cancellation, interrupt, exit).
    """
    if isinstance(error, BaseExceptionGroup):
        return classify(error.exceptions[0], model=model)
    if not isinstance(error, Exception):
        raise error
    if isinstance(error, WorldAgentError):
        return error
    own = _own(error, model)
    if own is not None:
        return own
    for kind, make in _TABLE:
        if isinstance(error, kind):
            return make(model, error)
    return _unknown(model, error)


def _own(error: Exception, model: str) -> WorldAgentError | None:
    """What our own engines said; dspy wraps it and keeps it as the cause."""
    cause = error if isinstance(error, EngineClosed | PromptTooLong) else error.__cause__
    if isinstance(cause, EngineClosed):
        return AgentClosed(f"the connection to the model {model!r} is closed", remedy="start the agent again")
    if isinstance(cause, PromptTooLong):
        size = f"is {cause.prompt_tokens} tokens long" if cause.prompt_tokens else "is too long"
        room = f"takes {cause.limit} tokens" if cause.limit else "takes fewer"
        return ContextExceeded(f"the prompt {size} and the model {model!r} {room}", remedy=_SHORTEN)
    return None


_SHORTEN = "shorten the message, the role or the conversation, or use a model with a longer context"
_CLIENT_ERROR = 4  # the class of HTTP statuses from 400 to 499
_RETRY = "try again later, and check the service's status and your network"


def _fixed(kind: _Kind, problem: str, remedy: str) -> _Make:
    def make(model: str, error: BaseException) -> WorldAgentError:
        return kind(f"the model {model!r} {problem} ({type(error).__name__})", remedy=remedy)

    return make


def _rate_limited(model: str, error: BaseException) -> WorldAgentError:
    seconds = _number(getattr(error, "retry_after", None))
    wait = "wait" if seconds is None else f"wait {seconds:g} seconds"
    return ModelRateLimited(f"the model {model!r} is rate limited", remedy=f"{wait} and try again", retry_after=seconds)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value < float("inf") else None


_key_refused = _fixed(ModelNotConfigured, "refused the API key", "give a key that this service accepts for this model")
_refused = _fixed(ModelRefused, "refused the request", "check that the model takes what is sent to it")
_timeout = _fixed(ModelTimeout, "did not answer in time", "try again, or allow more time")
_unavailable = _fixed(ModelUnavailable, "cannot be reached or failed", _RETRY)
_unknown = _fixed(ModelUnavailable, "failed in a way that is not known", _RETRY)


def _by_status(model: str, error: BaseException) -> WorldAgentError:
    """A provider's error of no finer type: its HTTP status decides."""
    match getattr(error, "status", None):
        case 401 | 403:
            return _key_refused(model, error)
        case 408 | 504:
            return _timeout(model, error)
        case 429:
            return _rate_limited(model, error)
        case int(status) if status // 100 == _CLIENT_ERROR:
            return _refused(model, error)
        case _:
            return _unavailable(model, error)


# The first row that fits counts, so subclasses stand above their parents.
_TABLE: tuple[tuple[type[Exception], _Make], ...] = (
    (
        dspy_errors.AdapterParseError,
        _fixed(
            OutputInvalid, "answered something that is not the fields asked for", "try again, or use a larger model"
        ),
    ),
    (
        dspy_errors.ContextWindowExceededError,
        _fixed(ContextExceeded, "takes fewer tokens than the prompt has", _SHORTEN),
    ),
    (dspy_errors.LMAuthError, _key_refused),
    (dspy_errors.LMBillingError, _fixed(ModelRefused, "refused for billing or quota", "check the account's balance")),
    (dspy_errors.LMRateLimitError, _rate_limited),
    (
        dspy_errors.LMUnsupportedModelError,
        _fixed(ModelNotConfigured, "is not known to the service", "check the model's name and what the key may use"),
    ),
    (dspy_errors.LMInvalidRequestError, _refused),
    (dspy_errors.LMTimeoutError, _timeout),
    (TimeoutError, _timeout),
    (dspy_errors.LMServerError, _unavailable),
    (dspy_errors.LMProviderError, _by_status),
    (dspy_errors.LMTransportError, _unavailable),
    (dspy_errors.LMLockTimeoutError, _unavailable),
    (
        dspy_errors.LMUnsupportedFeatureError,
        _fixed(ModelRefused, "cannot do what was asked of it", "use a model with this ability"),
    ),
    (
        dspy_errors.LMConfigurationError,
        _fixed(ModelNotConfigured, "is not configured", "check the model's name, its API key and its address"),
    ),
    (
        dspy_errors.LMCollectionLimitError,
        _fixed(ModelRefused, "answered more than can be held", "ask for less, or set max_tokens"),
    ),
    (dspy_errors.LMStreamAssemblyError, _unavailable),
    (dspy_errors.LMError, _unknown),
    # Raised before anything is sent, for instance for text that is not valid Unicode: trying again changes nothing.
    (ValueError, _refused),
    (TypeError, _refused),
)

__all__ = ["classify"]
