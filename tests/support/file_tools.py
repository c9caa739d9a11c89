"""The tools for files, called without an agent: what their bodies give and raise, in this thread."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from worldagent.tools.files import Roots, file_functions


class Context(Protocol):
    """The part of a context that the bodies look at."""

    @property
    def cancelled(self) -> bool: ...


@dataclass
class Waited:
    """A context of a call that somebody waits for."""

    cancelled: bool = False


class FileTools:
    """The tools over some folders, the first of which is the working folder."""

    def __init__(self, *folders: Path, limit: int = 30_000) -> None:
        self.roots = Roots(folders)
        self.functions = {each.name: each for each in file_functions(self.roots, limit=limit)}
        self.context: Context = Waited()

    def __call__(self, name: str, **input: Any) -> str:
        function = self.functions[name]
        params = function.params(**input)
        values = {key: getattr(params, key) for key in type(params).model_fields}
        plain: Callable[..., str] = function.body.__wrapped__  # type: ignore[attr-defined] # `functools.wraps` puts it there
        return plain(self.context, **values) if function.context else plain(**values)

    def read(self, path: str, **more: Any) -> str:
        return self("read_file", path=path, **more)

    def write(self, path: str, content: str) -> str:
        return self("write_file", path=path, content=content)

    def edit(self, path: str, old: str, new: str, **more: Any) -> str:
        return self("edit_file", path=path, old=old, new=new, **more)

    def glob(self, pattern: str, **more: Any) -> str:
        return self("glob_files", pattern=pattern, **more)

    def grep(self, pattern: str, **more: Any) -> str:
        return self("grep_content", pattern=pattern, **more)


def tree(folder: Path, *files: str, content: str = "text\n") -> Path:
    """Make files below a folder; a name that ends with `/` is a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in files:
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    return folder


def open_files() -> int:
    """How many files this process has open."""
    return len(os.listdir("/dev/fd"))


__all__ = ["FileTools", "open_files", "tree"]
