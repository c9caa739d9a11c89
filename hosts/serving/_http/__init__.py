"""A service over streamable HTTP. What it answers is not decided here."""

from ._application import application
from ._serve import serve_http

__all__ = ["application", "serve_http"]
