"""Errors of model calls: those of our own engines, and what a turn can store of any exception (D5).

The caller does retries (see `retryable` and `retry_after`) and calls the hook that gets the original. Providers repeat
prompts in their messages, so the text of the original is never read. Only its type, its numbers, and codes and ids of a
known form are used.
"""

from __future__ import annotations

import builtins
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from dspy import lm15
from dspy.utils import exceptions as dspy_errors

from ...core import errors
from ...core.errors import HostError, WorldAgentError
from ...core.files import packaged_table
from ..calling import Unfit
from .costs import duration
from .providers import ADDRESS_REMEDY


class PromptTooLong(lm15.ContextLengthError):
    """The prompt has more tokens than the context of the embedded model.

    Args:
        prompt_tokens: The number of its tokens, or None if llama.cpp did not report it.
        limit: The number of tokens that fit.

    Attributes:
        size: How long it is, in words.
        room: How much fits.
    """

    def __init__(self, *, prompt_tokens: int | None, limit: int | None) -> None:
        super().__init__("the prompt is longer than the context of the embedded model")
        self.size = f"has {prompt_tokens} tokens" if prompt_tokens else "is too long"
        self.room = f"accepts {limit}" if limit else "accepts fewer tokens"


class EngineClosed(lm15.ConfigurationError):
    """A call was made after the connection was closed."""

    def __init__(self) -> None:
        super().__init__("the connection to the model is closed")


class AnswerTooLong(lm15.InvalidRequestError):
    """The answer has more characters than the limit."""

    def __init__(self) -> None:
        super().__init__("the answer is longer than the limit")


class Declined(lm15.InvalidRequestError):
    """The model, or a filter of its service, declined to answer, and said nothing that could be shown."""

    def __init__(self) -> None:
        super().__init__("the model declined to answer")


class Malformed(lm15.InvalidRequestError):
    """The service reports that the model's answer came out wrong."""

    def __init__(self) -> None:
        super().__init__("the model's answer is malformed")


class WrittenCall(Malformed):
    """A call stands in the model's text, where its service should have read it."""


class NoAnswer(lm15.InvalidRequestError):
    """What came is not an answer of a model, such as a web page."""

    def __init__(self) -> None:
        super().__init__("this is not an answer of a model's service")


class Unreachable(lm15.TransportError):
    """The connection to the service failed. Its text is the address and the cause, and holds nothing of the request.

    Attributes:
        remedy: What to do.
    """

    def __init__(self, text: str, remedy: str = "check the service's address (api_base) and your network") -> None:
        super().__init__(text)
        self.remedy = remedy


# --- classification ---------------------------------------------------------------------------------------------------

_CODE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_REQUEST: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_LOWEST, _HIGHEST = 100, 599  # the range of HTTP statuses
_CLIENT_ERROR, _SERVER_ERROR = 4, 5  # the classes of HTTP statuses from 400 to 499, and from 500 to 599
_TOO_LARGE, _RATE_LIMITED, _FAILED = 413, 429, 500
_MALFORMED: Final = frozenset({"tool_use_failed", "json_validate_failed", "output_parse_failed"})
"""Codes of services that could not read a call of the model."""


def _table(part: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = packaged_table(__package__, "failures.toml")[part]
    return found


@cache
def words(name: str, part: str = "words") -> re.Pattern[str]:
    """The pattern of a name in a part of `failures.toml`."""
    return re.compile("|".join(_table(part)[name]), re.IGNORECASE)


def classify(error: BaseException, *, model: str) -> WorldAgentError:
    """Return the typed error for `error`, new and without its text. Raise it outside the `except` block.

    Args:
        error: The exception of a predictor or model call. An error of this package is returned unchanged; for an
            exception group the first member counts.
        model: The model's name, for the text.

    Raises:
        BaseException: `error` itself if it is not a failure but a request to stop (cancellation, interrupt, exit).
    """
    if isinstance(error, BaseExceptionGroup):
        return classify(error.exceptions[0], model=model)
    if not isinstance(error, Exception):
        raise error
    if isinstance(error, WorldAgentError):
        return error
    own = _own(error)
    made = _made(own[0], model, own[1]) if own else _made(_said_of(error) or _meaning_of(error), model, error)
    if isinstance(made, HostError):
        made.status = _status(error)
        made.service_code = _form(_CODE, getattr(error, "provider_code", None))
        made.request_id = _form(_REQUEST, getattr(error, "request_id", None))
    return made


def _status(error: BaseException) -> int | None:
    status = getattr(error, "status", None)
    return status if isinstance(status, int) and _LOWEST <= status <= _HIGHEST else None


def _form(form: re.Pattern[str], value: object) -> str | None:
    """A code or an id. A text of another form can be anything, and is dropped."""
    return value if isinstance(value, str) and form.fullmatch(value) else None


def _answer(error: BaseException) -> str:
    """The known parts of the service's answer, for the text: status and code, else the type of the original."""
    status, code = _status(error), _form(_CODE, getattr(error, "provider_code", None))
    if status is None and isinstance(error, dspy_errors.LMUnexpectedError):
        return _place(error.__cause__)
    if status is None:
        return type(error).__name__
    return f"HTTP {status}" if code in (None, str(status)) else f"HTTP {status}, {code}"


def _place(cause: BaseException | None) -> str:
    """The type of an error that a model's engine raised, and where: its text can hold parts of the prompt."""
    if cause is None:
        return "LMUnexpectedError"
    frame = cause.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = "" if frame is None else f" in {os.path.basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno}"
    return f"{type(cause).__name__}{where}"


def _made(meaning: str, model: str, cause: BaseException) -> WorldAgentError:
    """The typed error of a meaning."""
    said, seconds = _table("meaning")[meaning], _number(getattr(cause, "retry_after", None))
    wait = "wait" if seconds is None else f"wait {duration(seconds)}"
    given = {"model": model, "answer": _answer(cause), "cause": cause, "wait": wait, "address": ADDRESS_REMEDY}
    problem, remedy = said["problem"].format(**given), said["remedy"].format(**given)
    extra: Mapping[str, Mapping[str, Any]] = {"rate_limited": {"retry_after": seconds}, "unfit": {"fault": str(cause)}}
    kind: type[WorldAgentError] = getattr(errors, said["error"])
    return kind(problem, remedy=remedy, **extra.get(meaning, {}))


_OWN: Final[Mapping[type[BaseException], str]] = {
    EngineClosed: "closed",
    Unfit: "unfit",
    Unreachable: "unreached",
    PromptTooLong: "embedded_too_long",
    AnswerTooLong: "answer_too_long",
    Declined: "declined_in_answer",
    Malformed: "malformed",
    NoAnswer: "no_answer",
}
"""The meanings of errors of our own engines and answers, which can be the cause of one of dspy."""


def _own(error: BaseException) -> tuple[str, BaseException] | None:
    """The meaning of one of these errors, or of one that only its code names, and which one it is."""
    for cause in (error, error.__cause__):
        for kind in filter(_OWN.__contains__, type(cause).__mro__):
            return _OWN[kind], error if cause is None else cause
    return ("malformed", error) if getattr(error, "provider_code", None) in _MALFORMED else None


@cache
def _raised() -> Mapping[type[BaseException], Mapping[str, str]]:
    """The meanings of exceptions of dspy and Python, by their status."""
    return {
        getattr(dspy_errors, name, None) or getattr(builtins, name): each for name, each in _table("raised").items()
    }


def _meaning_of(error: BaseException) -> str:
    """The meaning of an exception's class and status."""
    kind = next(filter(_raised().__contains__, type(error).__mro__), None)
    if kind is None:
        return "unknown"
    by_status, status = _raised()[kind], _status(error)
    return by_status.get(str(status)) or by_status.get(f"{(status or 0) // 100}xx") or by_status["else"]


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value < float("inf") else None


def _is_overflow(error: BaseException) -> bool:
    """Whether a service refused a prompt because it is too long, however it says so."""
    if isinstance(error, dspy_errors.ContextWindowExceededError):
        return True
    if not isinstance(error, dspy_errors.LMProviderError):
        return False
    status, text = _status(error), str(error)
    if status is not None and status // 100 not in (_CLIENT_ERROR, _SERVER_ERROR):
        return False
    if status == _TOO_LARGE or words("too_large").search(text):
        return True
    # Otherwise a limit of tokens in a time, which a shorter prompt can fit or not, is none of a prompt.
    return bool(words("overflow").search(text)) and not words("per_time").search(text)


def _said_of(error: BaseException) -> str | None:
    """The meaning that the text of a service says more exactly than its status."""
    if _is_overflow(error):
        return "too_long"
    if not isinstance(error, dspy_errors.LMProviderError) or _status(error) == _RATE_LIMITED:
        return None
    said = f"{error} {getattr(error, 'provider_code', '')}"
    return next((meaning for meaning in _table("said") if words(meaning, "said").search(said)), None)


_MAYBE_FORM: Final = frozenset({400, 404, 415, 422, 501})
"""Statuses with which servers refuse tools or the order of messages, among other causes."""


def status_said(code: str) -> int | None:
    """The status that the code or the type of an error means, for a service that sends no status."""
    return next((int(status) for status in _table("statuses") if words(status, "statuses").search(code)), None)


def refuses_form(error: BaseException) -> bool:
    """Whether a service could have refused the form of a request and not its content. Asking in words would show it.

    Args:
        error: The exception of a model call.
    """
    if _said_of(error) is not None or words("otherwise").search(str(getattr(error, "provider_code", None))):
        return False
    status = _status(error)
    if status is None:
        return isinstance(error, dspy_errors.LMUnsupportedFeatureError)
    return status in _MAYBE_FORM or (status // 100 == _SERVER_ERROR and bool(words("form").search(str(error))))


def is_written_call(error: BaseException) -> bool:
    """Whether the model wrote a call into its text, which its service did not read.

    Args:
        error: The exception of a model call.
    """
    return isinstance(error, WrittenCall) or isinstance(error.__cause__, WrittenCall)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsRefused:
    """What a service does not take of the tools of a request.

    Attributes:
        places: Which of them it named.
        most: How many it takes, if they were too many.
        grammar: Whether it could not make a grammar of their schemas, without a word of which.
    """

    places: frozenset[int] = frozenset()
    most: int | None = None
    grammar: bool = False


def tools_refused(error: Exception, names: Sequence[str]) -> ToolsRefused | None:
    """What a service does not take of a request's tools, if it refused the request because of some of them.

    Limits of numbers are read here instead of kept in a table, since vendors change them and gateways add their own.

    Args:
        error: The exception of a model call.
        names: The names of the tools, as they were sent.
    """
    text, status = str(error), _status(error)
    grammar = bool(words("grammar").search(text)) and status in _MAYBE_FORM | {_FAILED}
    if not names or _own(error) or _said_of(error) or not (grammar or status in _MAYBE_FORM):
        return None
    if found := words("too_many").search(text) if words("of_tools").search(text) else None:
        most = int(found[1])
        if 0 < most < len(names):
            return ToolsRefused(most=most)
    placed = {int(each[1] or each[2]) - bool(each[3]) for each in words("placed").finditer(text)}
    # What names a tool because of a call of it does not refuse the tool.
    named = set() if words("of_a_call").search(text) else {each[1] or each[2] for each in words("named").finditer(text)}
    places = {place for place, name in enumerate(names) if place in placed or name in named}
    return ToolsRefused(places=frozenset(places), grammar=not places) if places or grammar else None


# The first matching row counts, so subclasses come before their parents.
