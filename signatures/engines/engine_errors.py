"""The errors of our own engines, as lm15's types so that dspy maps them. `classify` reads their numbers."""

from __future__ import annotations

from dspy import lm15


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


__all__ = ["AnswerTooLong", "EngineClosed", "PromptTooLong"]
