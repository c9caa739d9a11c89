"""The check of a role host, point by point: which points apply, what each requires, and the clean-up at the end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from ...mcp_client import TOOLS, HttpHost, StdioHost
from ...mcp_client.transports import quiet_context
from .kit import HostCheckOptions, Kit
from .points import Point, Result, Skipped, Tell, settle
from .roles import POINTS
from .transport import FIRST_POINTS, LAST_POINTS

HOST_POINTS: Final = (*FIRST_POINTS, *POINTS, *LAST_POINTS)
"""The points of a role host, in the order of the check. The contract is in `docs/reference/role-host.md`."""

_TOOL: Final = re.compile(rf"\b({'|'.join(TOOLS)})\b")


async def assert_conforms(host: HttpHost | StdioHost, options: HostCheckOptions | None = None) -> list[Result]:
    """Check a role host as `check_host` does, and raise if a point fails.

    Args:
        host: The host, in any language.
        options: What the check can do.

    Returns:
        The results, in the order of the points.

    Raises:
        AssertionError: A point fails; the text names each such point, the problem and the remedy.
    """
    results = await check_host(host, options)
    failed = [f"{each.id}: {each.problem}; {each.remedy}" for each in results if each.status == "fail"]
    if failed:
        raise AssertionError("\n".join([f"{host.label} breaks the contract of role hosts:", *failed]))
    return results


async def check_host(
    host: HttpHost | StdioHost, options: HostCheckOptions | None = None, *, tell: Tell | None = None
) -> list[Result]:
    """Check a role host against the contract in `docs/reference/role-host.md`, over the wire.

    Whatever the host does, the outcome is a result for each point. Nothing is written unless the options allow it, and
    all that the check writes is cleared, even if the check is cancelled.

    Args:
        host: The host, in any language. Its own time limits are not used; those of the options are.
        options: What the check can do.
        tell: Receives each result as it is known.

    Returns:
        The results, in the order of the points.
    """
    # In a context that silences the MCP library's logs, which can contain what the host sent.
    check = _check(Kit(host, options or HostCheckOptions()), tell)
    return await asyncio.create_task(check, context=quiet_context())


async def _check(kit: Kit, tell: Tell | None) -> list[Result]:
    host = kit.host
    other = "stdio" if isinstance(host, HttpHost) else "http"
    try:
        for point in HOST_POINTS:
            if point.when != other:
                result = _called(await settle(point, partial(_look, kit, point)), host.tools)
                kit.results[point.id] = result
                if tell is not None:
                    tell(result)
    finally:
        await kit.aclose()
    return list(kit.results.values())


def _called(result: Result, names: Mapping[str, str]) -> Result:
    """Return the result with the host's own names of the tools; the checks use the contract's names."""

    def own(text: str) -> str:
        return _TOOL.sub(lambda found: names.get(found[0], found[0]), text)

    title, problem, remedy = own(result.title), own(result.problem), own(result.remedy)
    return replace(result, title=title, problem=problem, remedy=remedy, detail=own(result.detail))


async def _look(kit: Kit, point: Point) -> str | None:
    if point.when == "--write" and not kit.options.write:
        raise Skipped("the check must not write", "let it put roles in its own scopes: --write", reason="write")
    for needed in point.needs:
        if not kit.passed(needed):
            raise Skipped(f"it needs {needed}", "see that point", reason="needs")
    return await point.check(kit)
