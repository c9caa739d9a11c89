"""The web for models: pages read without a way into this machine and its network, and searches of what a host gives."""

from .index import LocalIndex
from .page import WebPage, web_fetch_function
from .search import SearchHit, WebSearch, web_search_function

__all__ = ["LocalIndex", "SearchHit", "WebPage", "WebSearch", "web_fetch_function", "web_search_function"]
