"""The check of an installation, point by point. It changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from ...testing.role_host_conformance import Point, Result, Skipped, Tell, settle
from . import files, keys, package, services
from .options import InstallationOptions, Site

INSTALLATION_POINTS: Final = (*package.POINTS, *files.POINTS, *keys.POINTS, *services.POINTS)
"""The points of an installation, in the order in which they are checked."""


async def check_installation(options: InstallationOptions | None = None, *, tell: Tell | None = None) -> list[Result]:
    """Check whether agents can run here: versions, settings, home, model, role host.

    Nothing is created or changed. A home that does not exist yet is not created.

    Args:
        options: What to check.
        tell: Called with each result as soon as it is known.

    Returns:
        The results, in the order of the points.
    """
    site = Site(options or InstallationOptions())
    results: dict[str, Result] = {}
    for point in INSTALLATION_POINTS:
        result = await settle(point, partial(_look, site, point, results))
        results[point.id] = result
        if tell is not None:
            tell(result)
    return list(results.values())


async def _look(site: Site, point: Point, results: Mapping[str, Result]) -> str | None:
    if point.when == "--model" and not site.options.call_model:
        raise Skipped("the model was not called", "add --model to send it one question")
    for needed in point.needs:
        if results[needed].status in ("fail", "skip"):
            raise Skipped(f"it needs {needed}, which did not pass", f"fix {needed} first", reason="needs")
    return await point.check(site)


__all__ = ["INSTALLATION_POINTS", "check_installation"]
