"""A role host on a transport: standard input and output, or HTTP. What it answers is not decided here."""

from ._http import Address, serve_http
from ._stdio import serve_stdio

__all__ = ["Address", "serve_http", "serve_stdio"]
