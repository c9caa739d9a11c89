"""Keeping LangGraph runs apart: what one runs inside another is not a part of it, unless LangGraph is told so."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from langchain_core.runnables.config import var_child_runnable_config


@contextmanager
def apart() -> Generator[None]:
    """Hide the graph around from what runs in the block: its callbacks, its checkpoints, and the context of its nodes.

    An agent can be used inside a graph of the embedder's, and a tool can run a graph or a LangChain tool of its own.
    """
    outer = var_child_runnable_config.set(None)
    try:
        yield
    finally:
        var_child_runnable_config.reset(outer)


__all__ = ["apart"]
