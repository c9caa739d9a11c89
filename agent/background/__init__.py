"""Work in the background of a conversation (T17): `WorldAgent(background=True)`, `agent.background(...)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazy

if TYPE_CHECKING:
    from .capability import Background
    from .tasks import BackgroundState, BackgroundTask

__all__ = ["Background", "BackgroundState", "BackgroundTask"]

__getattr__ = lazy(__name__, {".capability": "Background", ".tasks": "BackgroundState BackgroundTask"})
