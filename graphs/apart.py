"""Keeps LangGraph runs apart: LangGraph treats a run inside another run as a part of it unless it is isolated."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from langchain_core.runnables.config import var_child_runnable_config


@contextmanager
def apart() -> Generator[None]:
    """Hide the surrounding graph from the block: its callbacks, its checkpoints and the context of its nodes.

    An agent can be used inside a graph of the embedder's, and a tool can run its own graph or LangChain tool.
    """
    outer = var_child_runnable_config.set(None)
    try:
        yield
    finally:
        var_child_runnable_config.reset(outer)


__all__ = ["apart"]
