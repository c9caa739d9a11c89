"""The web for models: pages, without access to this machine and its network, and searches in sources of the host."""

from .index import LocalIndex
from .page import SearchHit, WebPage, WebSearch, web_fetch_function, web_search_function

__all__ = ["LocalIndex", "SearchHit", "WebPage", "WebSearch", "web_fetch_function", "web_search_function"]
