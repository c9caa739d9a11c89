"""What our own engines raise, in lm15's terms so that dspy maps it; `classify` reads the numbers back."""

from __future__ import annotations

from dspy import lm15


class PromptTooLong(lm15.ContextLengthError):
    """The prompt has more tokens than the embedded model's context.

    Attributes:
        prompt_tokens: How many it has, or None where llama.cpp did not say.
        limit: How many fit.
    """

    def __init__(self, *, prompt_tokens: int | None, limit: int | None) -> None:
        super().__init__("the prompt is longer than the context of the embedded model")
        self.prompt_tokens = prompt_tokens
        self.limit = limit


class EngineClosed(lm15.ConfigurationError):
    """A call came after the connection was closed."""

    def __init__(self) -> None:
        super().__init__("the connection to the model is closed")


class AnswerTooLong(lm15.InvalidRequestError):
    """The answer has more characters than are read."""

    def __init__(self) -> None:
        super().__init__("the answer is longer than what is read of one")


__all__ = ["AnswerTooLong", "EngineClosed", "PromptTooLong"]
