"""The model and the role host that the settings name, as an agent would use them."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from .._outcomes import Failed
from ._options import Site

_QUESTION: Final = "Say hello."


async def configured(site: Site) -> str | None:
    """An agent could open it: it has a vendor and a key, or weights. A hosted one is not contacted."""
    # Here, because it imports dspy.
    from ....signatures import open_model

    caller = await open_model(site.lm, api_base=site.settings.api_base if site.settings else None)
    await caller.aclose()
    if site.options.lm is None and (site.settings is None or site.settings.lm is None):
        return "local, the embedded one, since no other is set (WORLDAGENT_LM)"
    return site.lm


async def answers(site: Site) -> str | None:
    """One turn, as the command line makes it, in a home of its own."""
    from ....agent import WorldAgent
    from ....storage import Storage

    with tempfile.TemporaryDirectory(prefix="worldagent-doctor-") as home:
        assert site.settings is not None, "the settings fit"
        settings = site.settings.model_copy(update={"role_host": None, "model_attempts": 1})
        storage = Storage(home=Path(home))
        try:
            async with asyncio.timeout(site.options.timeout):
                async with WorldAgent("doctor", lm=site.lm, storage=storage, settings=settings) as agent:
                    usage = (await agent.thread("doctor").converse(_QUESTION)).usage
                    return f"{usage.input_tokens} tokens sent, {usage.output_tokens} received"
        except TimeoutError:
            pass
    raise Failed(f"it did not answer within {site.options.timeout:g} s", "see its service, or give --timeout")


async def role_host(site: Site) -> str | None:
    """It can be reached with the token, and has the tools."""
    from ....mcp_client import HostRoleStore

    host = site.settings.host() if site.settings else None
    if host is None:
        return "none: the embedded store is used"
    limit = min(site.options.timeout, host.connect_timeout)
    store = HostRoleStore(replace(host, connect_timeout=limit))
    async with contextlib.aclosing(store):
        await store.connect()
        tiers = ", ".join(sorted(store.tiers))
    return f"keeps {tiers}; `worldagent doctor --role-host URL` checks it"


CHECKS = {"model.configured": configured, "model.call": answers, "role_host.reach": role_host}

__all__ = ["CHECKS"]
