"""What the tools that ship are called. Nothing here imports one, so that a file can be checked against the names."""

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
"""The names of the tools that ship."""

__all__ = ["BUILTIN"]
