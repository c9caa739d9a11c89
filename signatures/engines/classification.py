"""Errors of model calls: those of our own engines, and what a turn can store of any exception (D5).

The caller does retries (see `retryable` and `retry_after`) and calls the hook that gets the original. Providers repeat
prompts in their messages, so the text of the original is never read. Only its type, its numbers, and codes and ids of a
known form are used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dspy import lm15
from dspy.utils import exceptions as dspy_errors

from ...core.errors import (
    AgentClosed,
    ContextExceeded,
    HostError,
    ModelNotConfigured,
    ModelRateLimited,
    ModelRefused,
    ModelTimeout,
    ModelUnavailable,
    OutputInvalid,
    WorldAgentError,
)
from ..calling import Unfit
from .costs import duration
from .providers import ADDRESS_REMEDY


class PromptTooLong(lm15.ContextLengthError):
    """The prompt has more tokens than the context of the embedded model.

    Attributes:
        prompt_tokens: The number of its tokens, or None if llama.cpp did not report it.
        limit: The number of tokens that fit.
    """

    def __init__(self, *, prompt_tokens: int | None, limit: int | None) -> None:
        super().__init__("the prompt is longer than the context of the embedded model")
        self.prompt_tokens = prompt_tokens
        self.limit = limit


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
    """What came is no answer of a model, such as a web page."""

    def __init__(self) -> None:
        super().__init__("this is no answer of a model's service")


class Unreachable(lm15.TransportError):
    """The connection to the service failed. Its text is the address and the cause, and holds nothing of the request.

    Attributes:
        remedy: What to do.
    """

    def __init__(self, text: str, remedy: str = "check the service's address (api_base) and your network") -> None:
        super().__init__(text)
        self.remedy = remedy


# --- classification ---------------------------------------------------------------------------------------------------

_Make = Callable[[str, BaseException], WorldAgentError]
_Kind = type[WorldAgentError]

_CODE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_REQUEST: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


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
    make = next((make for kind, make in _TABLE if isinstance(error, kind)), _unknown)
    made = _own(error, model) or (_said_of(error) or make)(model, error)
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


def _own(error: Exception, model: str) -> WorldAgentError | None:
    """The errors of our own engines and adapters, which are the cause of another one."""
    for cause in (error, error.__cause__):
        for kind, make in _OWN:
            if isinstance(cause, kind):
                return make(model, cause)
    return _malformed(model, error) if getattr(error, "provider_code", None) in _MALFORMED else None


def _closed(model: str, _: BaseException) -> WorldAgentError:
    return AgentClosed(f"the connection to the model {model!r} is closed", remedy="start the agent again")


def _unfit(model: str, cause: BaseException) -> WorldAgentError:
    return OutputInvalid(
        f"the model {model!r} did not answer with the requested fields: {cause}",
        remedy="try again, or use a larger model",
        fault=str(cause),
    )


def _unreached(model: str, cause: BaseException) -> WorldAgentError:
    assert isinstance(cause, Unreachable)
    return ModelUnavailable(f"the model {model!r} cannot be reached at {cause}", remedy=cause.remedy)


def _embedded_too_long(model: str, cause: BaseException) -> WorldAgentError:
    tokens, limit = getattr(cause, "prompt_tokens", None), getattr(cause, "limit", None)
    size = f"has {tokens} tokens" if tokens else "is too long"
    room = f"accepts {limit}" if limit else "accepts fewer tokens"
    return ContextExceeded(f"the prompt {size} and the model {model!r} {room}", remedy=_SHORTEN)


def _said(kind: _Kind, problem: str, remedy: str) -> _Make:
    return lambda model, _: kind(f"the model {model!r} {problem}", remedy=remedy)


_OTHER_MESSAGE: Final = "change the message or the role; asking again gives the same"
_malformed = _said(OutputInvalid, "made a call that its service could not read", "try again, or use a larger model")
_MALFORMED: Final = frozenset({"tool_use_failed", "json_validate_failed", "output_parse_failed"})
"""Codes with which Groq reports the same, with the status 400: the answer does not fit, and not the request."""

_OWN: Final[tuple[tuple[type[BaseException], _Make], ...]] = (
    (EngineClosed, _closed),
    (Unfit, _unfit),
    (Unreachable, _unreached),
    (PromptTooLong, _embedded_too_long),
    (
        AnswerTooLong,
        _said(OutputInvalid, "gave an answer that is too long to read", "request less, or set max_tokens"),
    ),
    (
        Declined,
        _said(
            ModelRefused,
            "or a filter of its service declined to answer",
            _OTHER_MESSAGE,
        ),
    ),
    (Malformed, _malformed),
    (
        NoAnswer,
        _said(
            ModelNotConfigured,
            "gave something else than an answer, such as a page of HTML",
            f"check the service's address (api_base): {ADDRESS_REMEDY}",
        ),
    ),
)
_SHORTEN = "shorten the message, the role or the conversation, or use a model with a longer context"
_LOWEST, _HIGHEST = 100, 599  # the range of HTTP statuses
_FORBIDDEN, _NOT_FOUND = 403, 404
_CLIENT_ERROR, _SERVER_ERROR = 4, 5  # the classes of HTTP statuses from 400 to 499, and from 500 to 599
_RETRY = "try again later, and check the service's status and your network"


def _fixed(kind: _Kind, problem: str, remedy: str) -> _Make:
    def make(model: str, error: BaseException) -> WorldAgentError:
        return kind(f"the model {model!r} {problem} ({_answer(error)})", remedy=remedy)

    return make


def _rate_limited(model: str, error: BaseException) -> WorldAgentError:
    seconds = _number(getattr(error, "retry_after", None))
    wait = "wait" if seconds is None else f"wait {duration(seconds)}"
    problem = f"the model {model!r} is rate limited ({_answer(error)})"
    return ModelRateLimited(problem, remedy=f"{wait} and try again", retry_after=seconds)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value < float("inf") else None


_too_long = _fixed(ContextExceeded, "accepts fewer tokens than the prompt has", _SHORTEN)
_key_refused = _fixed(ModelNotConfigured, "refused the API key", "set a key that this service accepts for this model")
_no_access = _fixed(
    ModelNotConfigured,
    "refused access",
    "check at the service what the key, its project and its account can use, and whether your network is blocked",
)
_not_here = _fixed(
    ModelNotConfigured, "is not offered in your country", "use another service, or call it from where it is offered"
)
_refused = _fixed(
    ModelRefused, "refused the request", "check that the model accepts this kind of request, and the model_options"
)
_not_found = _fixed(
    ModelNotConfigured, "was not found at its service", "check the model's name, and the service's address (api_base)"
)
_timeout = _fixed(ModelTimeout, "did not answer within the time limit", "try again, or allow more time")
_gave_up = _fixed(ModelTimeout, "gave up before it had answered", "try again, or ask for a shorter answer")
_billing = _fixed(ModelRefused, "refused for billing or quota", "check the account's balance")
_declined = _fixed(ModelRefused, "or a filter of its service declined to answer", _OTHER_MESSAGE)
_unavailable = _fixed(ModelUnavailable, "cannot be reached or failed", _RETRY)
_unknown = _fixed(ModelUnavailable, "failed for an unknown reason", _RETRY)


def _invalid(model: str, error: BaseException) -> WorldAgentError:
    return (_not_found if _status(error) == _NOT_FOUND else _refused)(model, error)


def _unauthorized(model: str, error: BaseException) -> WorldAgentError:
    return (_no_access if _status(error) == _FORBIDDEN else _key_refused)(model, error)


def _late(model: str, error: BaseException) -> WorldAgentError:
    """A time limit: that of a call, or that of the service, which answers with a status."""
    return (_timeout if _status(error) is None else _gave_up)(model, error)


def _by_status(model: str, error: BaseException) -> WorldAgentError:
    """An error of a provider without a more specific type: its HTTP status decides."""
    match getattr(error, "status", None):
        case 401 | 403:
            return _unauthorized(model, error)
        case int(status) if status == _NOT_FOUND:
            return _not_found(model, error)
        case 408 | 504:
            return _late(model, error)
        case 429:
            return _rate_limited(model, error)
        case int(status) if status // 100 == _CLIENT_ERROR:
            return _refused(model, error)
        case _:
            return _unavailable(model, error)


_OVERFLOW: Final = re.compile(
    r"(maximum|max|available|allowed|model'?s?) (prompt|input|sequence) (length|size|window)"
    r"|context (length|window|size)"
    r"|(prompt|input|request|context|messages) ((is|was|are) )?too (long|large)|too many (input )?tokens"
    r"|reduce the (length|number) of (?!max|strict|nullable|optional)|exceed_context_size|input token count"
    r"|inputs?\W+tokens .{0,40}must be"
    r"|exceed\w* (the )?(model'?s? )?(token limit|max(imum)? (number of )?(input )?tokens)|model token limit"
    r"|range of input length|request too large|exceeds? the model'?s max"
    r"|prompt contains at least \d+|longer than the (maximum )?model|max_tokens must be at least 1, got -",
    re.IGNORECASE,
)
"""How services say that a prompt is too long. Their text is only compared with these words, and goes nowhere (D5)."""
_PER_TIME: Final = re.compile(r"per (minute|hour|day|second)|\b[TR]P[MD]\b|please wait|throttl", re.IGNORECASE)
_PLAIN: Final = re.compile(r"request too large", re.IGNORECASE)
"""What is too long whatever the time: OpenAI and Groq say so of a prompt that exceeds the limit of a minute."""
_TOO_LARGE, _RATE_LIMITED, _FAILED = 413, 429, 500


def _is_overflow(error: BaseException) -> bool:
    """Whether a service refused a prompt because it is too long, however it says so."""
    if isinstance(error, dspy_errors.ContextWindowExceededError):
        return True
    if not isinstance(error, dspy_errors.LMProviderError):
        return False
    status, text = _status(error), str(error)
    if status is not None and status // 100 not in (_CLIENT_ERROR, _SERVER_ERROR):
        return False
    if status == _TOO_LARGE or _PLAIN.search(text):
        return True
    # Otherwise a limit of tokens in a time, which a shorter prompt can fit or not, is none of a prompt.
    return bool(_OVERFLOW.search(text)) and not _PER_TIME.search(text)


_REFUSALS: Final[tuple[tuple[re.Pattern[str], _Make], ...]] = tuple(
    (re.compile(words, re.IGNORECASE), make)
    for words, make in (
        (
            r"content[ _](filter|management|policy)|ResponsibleAI|data_?inspection|inappropriate content"
            r"|(prompt|input|content) (was|is|has been) flagged|safety system",
            _declined,
        ),
        (
            r"unsupported_country|not available in your (country|region)"
            r"|(country|region|location)\b.{0,30} not supported",
            _not_here,
        ),
        (
            r"credit balance|(usage|spending|key) limits?\b|insufficient[ _](balance|credit|quota|funds)|arrear|overdue"
            r"|(any|no|more|available) credits\b",
            _billing,
        ),
        (r"api[_ ]key[_ ](is )?(not (valid|found)|invalid)|invalid api key", _key_refused),
        (r"failed to parse (input|tool)|failed to call a function|tool call validation failed", _malformed),
        (
            r"no models? (is |are )?loaded|load (the )?model|(model|deployment)\b.{0,80}(not found|not exist)"
            r"|not a valid model|model( \S+)? is not (supported|available)",
            _not_found,
        ),
    )
)
"""What services say of a request that is not at fault, though its status says so: compared only, as above."""


def _said_of(error: BaseException) -> _Make | None:
    """How to make the error that the text of a service says more exactly than its status."""
    if _is_overflow(error):
        return _too_long
    if not isinstance(error, dspy_errors.LMProviderError) or _status(error) == _RATE_LIMITED:
        return None
    said = f"{error} {getattr(error, 'provider_code', '')}"
    return next((make for words, make in _REFUSALS if words.search(said)), None)


_MAYBE_FORM: Final = frozenset({400, 404, 415, 422, 501})
"""Statuses with which servers refuse tools or the order of messages, among other causes."""
_FORM: Final = re.compile("tool|schema|grammar|response_format", re.IGNORECASE)
"""Words of a server that fails at the form of a request."""
_OTHERWISE: Final = re.compile(
    r"content_(filter|policy)|context_(length|window)|string_above_max|too_(long|large)|rate_limit|quota|billing|balance"
    r"|api_key|auth|permission|model_not|safety|moderation|(use|validate|parse)_failed",
    re.IGNORECASE,
)
"""Codes that name another cause."""


def refuses_form(error: BaseException) -> bool:
    """Whether a service could have refused the form of a request and not its content. Asking in words would show it.

    Args:
        error: The exception of a model call.
    """
    if _said_of(error) is not None or _OTHERWISE.search(str(getattr(error, "provider_code", None))):
        return False
    status = _status(error)
    if status is None:
        return isinstance(error, dspy_errors.LMUnsupportedFeatureError)
    return status in _MAYBE_FORM or (status // 100 == _SERVER_ERROR and bool(_FORM.search(str(error))))


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


_PLACED: Final = re.compile(
    r"function_?declarations\W{1,2}(\d+)"
    r"|\btools(?:\.|\[|\\?['\"], ?)(\d+)(?!\d|\]?\W{0,2}function_?declarations)(\.member\b)?",  # AWS counts from 1
    re.IGNORECASE,
)
_NAMED: Final = re.compile(
    r"\b(?:function|tool|schema)s?(?: for| named| name)?:? ?['\"`]([\w-]{1,64})['\"`]"
    r"|[`'\"]([\w-]{1,64})[`'\"] function_?declaration",
    re.IGNORECASE,
)
_OF_A_CALL: Final = re.compile(r"(?:tool|function)[ _](?:call|use)|messages?(?:\.|\[|')", re.IGNORECASE)
_TOO_MANY: Final = re.compile(
    r"(?:at most|more than|less than or equal to|max(?:imum)?(?: length| number of \w+)?(?: is| of)?) (\d{1,4})\b",
    re.IGNORECASE,
)
_GRAMMAR: Final = re.compile(r"grammar|schema conversion|unrecognized schema|too many states", re.IGNORECASE)
_OF_TOOLS: Final = re.compile(r"\btools\b|function_?declarations|\bfunctions\b", re.IGNORECASE)


def tools_refused(error: Exception, names: Sequence[str]) -> ToolsRefused | None:
    """What a service does not take of a request's tools, if it refused the request because of some of them.

    Limits of numbers are read here instead of kept in a table, since vendors change them and gateways add their own.

    Args:
        error: The exception of a model call.
        names: The names of the tools, as they were sent.
    """
    text, status = str(error), _status(error)
    grammar = bool(_GRAMMAR.search(text)) and status in _MAYBE_FORM | {_FAILED}
    if not names or _own(error, "") or _said_of(error) or not (grammar or status in _MAYBE_FORM):
        return None
    if found := _TOO_MANY.search(text) if _OF_TOOLS.search(text) else None:
        most = int(found[1])
        if 0 < most < len(names):
            return ToolsRefused(most=most)
    placed = {int(each[1] or each[2]) - bool(each[3]) for each in _PLACED.finditer(text)}
    # What names a tool because of a call of it does not refuse the tool.
    named = set() if _OF_A_CALL.search(text) else {each[1] or each[2] for each in _NAMED.finditer(text)}
    places = {place for place, name in enumerate(names) if place in placed or name in named}
    return ToolsRefused(places=frozenset(places), grammar=not places) if places or grammar else None


# The first matching row counts, so subclasses come before their parents.
_TABLE: tuple[tuple[type[Exception], _Make], ...] = (
    (
        dspy_errors.AdapterParseError,
        _fixed(OutputInvalid, "did not answer with the requested fields", "try again, or use a larger model"),
    ),
    (dspy_errors.LMAuthError, _unauthorized),
    (dspy_errors.LMBillingError, _billing),
    (dspy_errors.LMRateLimitError, _rate_limited),
    (
        dspy_errors.LMUnsupportedModelError,
        _fixed(ModelNotConfigured, "is not known to the service", "check the model's name and the key's permissions"),
    ),
    (dspy_errors.LMInvalidRequestError, _invalid),
    (dspy_errors.LMTimeoutError, _late),
    (TimeoutError, _timeout),
    (dspy_errors.LMServerError, _unavailable),
    (dspy_errors.LMProviderError, _by_status),
    (dspy_errors.LMTransportError, _unavailable),
    (dspy_errors.LMLockTimeoutError, _unavailable),
    (
        dspy_errors.LMUnsupportedFeatureError,
        _fixed(ModelRefused, "does not support this request", "use a model with this ability"),
    ),
    (
        dspy_errors.LMConfigurationError,
        _fixed(ModelNotConfigured, "is not configured", "check the model's name, its API key and its address"),
    ),
    (
        dspy_errors.LMCollectionLimitError,
        _fixed(ModelRefused, "gave an answer that is too long to hold", "request less, or set max_tokens"),
    ),
    (dspy_errors.LMStreamAssemblyError, _unavailable),
    (dspy_errors.LMError, _unknown),
    # Raised before anything is sent, for example for text that is not valid Unicode. Trying again does not help.
    (ValueError, _refused),
    (TypeError, _refused),
)
