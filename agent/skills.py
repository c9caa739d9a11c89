"""Skill packages as a capability: `WorldAgent(..., skills=["skills"])` (T6)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from ..core.capability import Capability, Runtime
from ..core.errors import InvalidArgument
from ..mcp_client.tools import McpSources
from ..skills import SkillCatalogue
from .runtime.inside import inside


class Skills(Capability[SkillCatalogue]):
    """Offers skill packages to conversations and to `thread.run_skill`, with those of MCP servers that may have some.

    Args:
        given: Folders with packages, or a `SkillCatalogue`.

    Raises:
        InvalidArgument: It is neither, or one of the folders does not exist.
    """

    name = "skills"
    after = ("mcp", "memory")

    def __init__(self, given: SkillCatalogue | Iterable[str | PathLike[str]] = ()) -> None:
        if not isinstance(given, SkillCatalogue):
            folders = [] if isinstance(given, str | bytes) or not isinstance(given, Iterable) else list(given)
            if given != () and (not folders or not all(isinstance(each, str | PathLike) for each in folders)):
                raise InvalidArgument(
                    "`skills` must be a list of folders, or a SkillCatalogue",
                    remedy="pass skills=[Path('skills')], or omit it",
                )
            given = SkillCatalogue.of([Path(each) for each in folders])
        self.catalogue: Final = given

    @asynccontextmanager
    async def opened(self, runtime: Runtime) -> AsyncGenerator[SkillCatalogue]:
        agent, catalogue = inside(runtime), self.catalogue
        sources: McpSources | None = agent.opened.get("mcp")
        with TemporaryDirectory(prefix="worldagent-skills-") as folder:
            if sources is not None and any(sources[each].server.skills for each in sources):
                from ..skills.hosted import fetch_skills

                catalogue = catalogue.with_hosts(await fetch_skills(sources, Path(folder)))
            if catalogue.usable:
                from ..skills.composer import SkillComposer

                spec = agent.spec
                composer = SkillComposer(
                    catalogue,
                    spec.registry,
                    spec.policy,
                    spec.identity,
                    lambda: agent.resolver.key,
                    memory=agent.recall is not None,
                    find_tools_above=spec.settings.find_tools_above,
                )
                agent.shapes.append(composer.shape())
            yield catalogue


__all__ = ["Skills"]
