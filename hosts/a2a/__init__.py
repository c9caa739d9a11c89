"""Members of a workspace as agents of A2A, in the web app (A22)."""

from __future__ import annotations

from .routes import a2a_routes

__all__ = ["a2a_routes"]
