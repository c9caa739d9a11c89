"""The names of the built-in tools. This module imports none of them, so that files can be checked against the names."""

from __future__ import annotations

from typing import Final

BUILTIN: Final = (
    "read_file",
    "write_file",
    "edit_file",
    "glob_files",
    "grep_content",
    "shell",
    "web_search",
    "web_fetch",
    "manage_todo_list",
    "explore",
    "parallel_execution",
)
"""The names of the built-in tools."""

__all__ = ["BUILTIN"]
