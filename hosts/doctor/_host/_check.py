"""The check of a host, point by point: which points apply, what each needs, and the end in any case."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from ....mcp_client import TOOLS, HttpHost, StdioHost
from .._outcomes import Result, Skipped, Tell, settle
from .._points import HOST_POINTS, Point
from . import _checks
from ._kit import Kit
from ._options import HostCheckOptions

Check = Callable[[Kit], Awaitable[str | None]]

CHECKS: Final[Mapping[str, Check]] = {
    **_checks.TOOLS,
    **_checks.READING,
    **_checks.REFUSALS,
    **_checks.WRITING,
    **_checks.LOAD,
    **_checks.WHOLE,
    **_checks.HTTP,
    **_checks.STDIO,
}
"""Every point's check, by its id."""

_TOOL: Final = re.compile(rf"\b({'|'.join(TOOLS)})\b")


async def check_host(
    host: HttpHost | StdioHost, options: HostCheckOptions | None = None, *, tell: Tell | None = None
) -> list[Result]:
    """Check a role host against the contract in `docs/role-host.md`, over the wire.

    Whatever the host does, the outcome is a result for each point. Nothing is written unless the options say so, and
    what is written is cleared, also when the check is cancelled. What the libraries below log may hold what the host
    sent; whoever embeds this sets their loggers.

    Args:
        host: The host, in any language. Its own time limits are not used; those of the options are.
        options: What may be done.
        tell: Told of each result as it is known.

    Returns:
        The results, in the order of the points.
    """
    kit = Kit(host, options or HostCheckOptions())
    try:
        for point in HOST_POINTS:
            if applies(point, host):
                result = _called(await settle(point, partial(_look, kit, point)), host.tools)
                kit.results[point.id] = result
                if tell is not None:
                    tell(result)
    finally:
        await kit.aclose()
    return list(kit.results.values())


def applies(point: Point, host: HttpHost | StdioHost) -> bool:
    """Whether a point is about this kind of host."""
    return point.when != ("stdio" if isinstance(host, HttpHost) else "http")


def _called(result: Result, names: Mapping[str, str]) -> Result:
    """The result with the host's own names of the tools; the checks speak of them as the contract does."""

    def own(text: str) -> str:
        return _TOOL.sub(lambda found: names.get(found[0], found[0]), text)

    title, problem, remedy = own(result.title), own(result.problem), own(result.remedy)
    return replace(result, title=title, problem=problem, remedy=remedy, detail=own(result.detail))


async def _look(kit: Kit, point: Point) -> str | None:
    if point.when == "--write" and not kit.options.write:
        raise Skipped("nothing may be written", "let the check put roles in scopes of its own: --write", reason="write")
    for needed in point.needs:
        if not kit.passed(needed):
            raise Skipped(f"it needs {needed}", "see that point", reason="needs")
    for tool in point.tools:
        if tool not in kit.schemas:
            raise Skipped(f"it needs the tool {tool}", "see tools.present", reason="needs")
    return await CHECKS[point.id](kit)


__all__ = ["CHECKS", "applies", "check_host"]
