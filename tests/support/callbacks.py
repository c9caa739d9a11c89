"""What LangChain and dspy callbacks get to see, kept so that a test can scan it."""

from __future__ import annotations

from typing import Any

from dspy.utils.callback import BaseCallback
from langchain_core.callbacks import BaseCallbackHandler


class _Recorder:
    """Answers every `on_...` method with one that keeps what it is called with."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("on_"):
            return super().__getattribute__(name)

        def record(*args: Any, **kwargs: Any) -> None:
            self.seen.append((name, args, kwargs))

        return record


class ChainCallbacks(_Recorder, BaseCallbackHandler):
    """For LangChain: pass it as `config={"callbacks": [...]}`."""


class ModelCallbacks(_Recorder, BaseCallback):
    """For dspy: pass it to `dspy.context(callbacks=[...])` or to a module."""
