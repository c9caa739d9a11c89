"""Skills that MCP servers offer as resources `skill://NAME/SKILL.md` and below, for servers with `skills=True` (T6).

They are read when the agent starts and written to a folder that lasts as long as the agent, so that the same rules hold
for them. Their scripts never run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote

from ..core.errors import HostError
from ..mcp_client.tools import McpSource, McpSources

SCHEME: Final = "skill://"
MAX_RESOURCES: Final = 500  # of one server
_LOG: Final = logging.getLogger("worldagent.skills")


async def fetch_skills(sources: McpSources, folder: Path) -> Sequence[Path]:
    """Read the skills of the servers that may offer them.

    A server that cannot be reached has none until the agent starts again; a warning says so.

    Args:
        sources: The servers.
        folder: Gets a folder for each server.

    Returns:
        The folders, in the order of the servers.
    """
    found: list[Path] = []
    for name in sources:
        if not sources[name].server.skills:
            continue
        try:
            files = await _files(name, sources[name])
        except HostError as error:
            _LOG.warning("the skills of MCP server %r are missing: %s", name, error)
            continue
        found.append(folder / name)
        await asyncio.to_thread(_write, folder / name, files)
    return found


async def _files(name: str, source: McpSource) -> Mapping[PurePosixPath, bytes]:
    paths: dict[str, PurePosixPath] = {}
    for resource in await source.resources():
        path = _path(resource.uri) if resource.uri.startswith(SCHEME) else None
        if path is not None and len(paths) < MAX_RESOURCES:
            paths[resource.uri] = path
        elif resource.uri.startswith(SCHEME):
            _LOG.warning("MCP server %r: the resource %r is left out of its skills", name, resource.uri[:200])
    contents = await source.files(paths)
    return dict(zip(paths.values(), contents, strict=True))


def _path(uri: str) -> PurePosixPath | None:
    """The path of a resource in a folder of skills; None if it could lead elsewhere."""
    parts = [unquote(part) for part in uri.removeprefix(SCHEME).split("/")]
    odd = any(not part or part.startswith(".") or set(part) & set("/\\:\0") or not part.isprintable() for part in parts)
    return None if odd or len(parts) < 2 else PurePosixPath(*parts)


def _write(folder: Path, files: Mapping[PurePosixPath, bytes]) -> None:
    folder.mkdir()
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
