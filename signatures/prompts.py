"""The static texts at the beginning of a conversation. It imports nothing heavy, so it can be read before dspy."""

from __future__ import annotations

from collections.abc import Mapping

DEFAULT_IDENTITY = "You are a helpful assistant."

# The embedded model needs examples to give one short answer. They say nothing about roles.
REPLY_DEMOS: tuple[Mapping[str, str], ...] = (
    {"message": "How many months are in a year?", "reply": "There are twelve months in a year."},
    {"message": "Say goodbye.", "reply": "Goodbye!"},
    {"message": "What is the capital of Japan?", "reply": "The capital of Japan is Tokyo."},
)


def brief_instructions(identity: str | None) -> str:
    """The conversation's instructions for the embedded model."""
    return f"{(identity or DEFAULT_IDENTITY).strip()} Answer briefly."


def preload(path: str | None = None, *, identity: str | None = None, keep: bool = False) -> None:
    """Begin to load the embedded model and to read the beginning of its prompts. This never raises.

    Args:
        path: A GGUF file, if not the usual one.
        identity: The identity of the agent.
        keep: Never free its memory, for a command that ends with its process.
    """
    from .engines import start_loading

    messages: list[Mapping[str, str]] = [{"role": "system", "content": brief_instructions(identity)}]
    for demo in REPLY_DEMOS:
        messages += [{"role": "user", "content": demo["message"]}, {"role": "assistant", "content": demo["reply"]}]
    start_loading(path, warm=messages, keep=keep)
