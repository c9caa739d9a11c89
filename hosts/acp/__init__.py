"""The threads of an agent as sessions of the Agent Client Protocol, which editors speak over standard streams."""

from .server import NO_ROLE, serve_acp

__all__ = ["NO_ROLE", "serve_acp"]
