"""Titles of threads in lists, and the search for threads that contain a text."""

from .search import ThreadSearch, check_query
from .titles import TITLE_TABLES, ThreadTitles, check_title, is_title

__all__ = ["TITLE_TABLES", "ThreadSearch", "ThreadTitles", "check_query", "check_title", "is_title"]
