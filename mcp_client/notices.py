"""Change notices: a host that can tell of a changed role makes what is kept in memory end early (R9).

They need the protocol revision 2026-07-28, whose `subscriptions/listen` answers with a stream of changes. The older
ones tell of changes only over a stream that the server may or may not open, one request for each scope; there the
time to live of what is kept decides alone, as it does for every host that offers no subscriptions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from mcp import Client
from mcp.client.subscriptions import ResourceUpdated, Subscription, SubscriptionLost
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from ..core import Tier

_SCOPES: Final = 256  # that are watched at most; the longest unused one goes first
_ENDS: Final = 10  # of streams that a host ends before it is left alone


class Notices:
    """The scopes that are watched over one link. `on_change` is told of the tier and scope of each change."""

    def __init__(self, on_change: Callable[[Tier, str], None]) -> None:
        self._on_change = on_change
        self._scopes: dict[str, tuple[Tier, str]] = {}
        self._more = asyncio.Event()
        self._listening = False

    def watch(self, scope_ids: dict[Tier, str]) -> None:
        """Watch these scopes, too."""
        for tier, scope_id in scope_ids.items():
            uri = f"role://{tier.value}/{quote(scope_id, safe='')}"
            if self._scopes.pop(uri, None) is None or not self._listening:
                self._more.set()
            self._scopes[uri] = (tier, scope_id)
        while len(self._scopes) > _SCOPES:
            del self._scopes[next(iter(self._scopes))]

    async def follow(self, client: Client) -> None:
        """Listen for as long as the link lives. A stream that ends is opened again by the next `watch`, a few times."""
        resources = client.server_capabilities.resources
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or resources is None or not resources.subscribe:
            return
        ended = 0
        while ended < _ENDS:
            await self._more.wait()
            try:
                ended += await self._listen(client)
            except Exception:  # whatever it is: a host without notices is as good, and its calls go on
                return

    async def _listen(self, client: Client) -> bool:
        """Listen to the scopes watched now, until there are more of them or the stream ends; True for the latter."""
        self._more.clear()
        scopes = dict(self._scopes)
        async with client.listen(resource_subscriptions=list(scopes)) as stream:
            self._listening = True
            changes = asyncio.create_task(self._read(stream, scopes))
            more = asyncio.create_task(self._more.wait())
            try:
                await asyncio.wait({changes, more}, return_when=asyncio.FIRST_COMPLETED)
                return changes.done()
            finally:
                self._listening = False
                changes.cancel()
                more.cancel()
                await asyncio.wait({changes, more})

    async def _read(self, stream: Subscription, scopes: dict[str, tuple[Tier, str]]) -> None:
        with contextlib.suppress(SubscriptionLost):
            async for event in stream:
                if isinstance(event, ResourceUpdated) and event.uri in scopes:
                    self._on_change(*scopes[event.uri])
