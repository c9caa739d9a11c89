"""How fast a host is, and whether calls that come together or are given up disturb one another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from statistics import median
from typing import Any, Final

from ..._outcomes import Failed, Finding, Warned
from .._kit import Kit
from .._replies import Reply

_ROUNDS: Final = 7
_AT_ONCE: Final = 16
_LATEST: Final = 30  # turns of the loop
_MOMENT: Final = 0.02  # seconds, in which a slow host has begun to work


async def speed(kit: Kit) -> str | None:
    """The median round trip of the call that every turn makes."""
    scope_ids = {tier.value: kit.readable(tier) for tier in (kit.tier,)}
    await kit.wire()
    taken: list[float] = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        (await kit.call("role_list", scope_ids=scope_ids)).roles()
        taken.append(time.perf_counter() - began)
        if sum(taken) > kit.options.timeout and len(taken) > 2:
            break
    middle = median(taken)
    told = f"a role_list takes {middle * 1000:,.0f} ms, the median of {len(taken)}"
    if middle > kit.options.slow:
        raise Failed(told, f"answer within {kit.options.slow:g} s: an agent waits no longer")
    if middle > kit.options.slowish:
        raise Warned(told, "every turn waits for it: an index, or a cache, may help")
    return f"{middle * 1000:,.1f} ms"


async def many(kit: Kit) -> str | None:
    """Calls that are made at once get the answers that they get alone."""
    asked = [kit.readable(kit.tier), kit.readable(kit.tier)]
    if kit.passed("put.answer"):
        asked[0] = (await kit.set_role(kit.tier))[0]
    alone = [(await _list(kit, scope_id)).roles() for scope_id in asked]
    await kit.wire()
    together = await _gathered([_list(kit, asked[number % 2]) for number in range(_AT_ONCE)])
    wrong = sum(reply.roles() != alone[number % 2] for number, reply in enumerate(together))
    if wrong:
        raise Failed(f"{wrong} of {_AT_ONCE} calls at once got another answer than alone", "let calls share nothing")
    return None


async def cancelled(kit: Kit) -> str | None:
    """Calls are given up at several moments; the one after them is answered."""
    wire, asked = await kit.wire(), {"scope_ids": {kit.tier.value: kit.readable(kit.tier)}}

    def call() -> Coroutine[Any, Any, Reply]:
        return kit.call_over(wire, "role_list", asked)  # over this connection, and no other in its place

    before = (await call()).roles()
    for turns in (1, 3, 10, _LATEST):
        given_up = asyncio.create_task(call())
        for _ in range(turns):
            await asyncio.sleep(0)
        if turns == _LATEST:
            await asyncio.wait({given_up}, timeout=_MOMENT)
        given_up.cancel()
        await asyncio.wait({given_up})
        if not given_up.cancelled():
            given_up.exception()  # it was answered, or failed, before; the last call tells
    if (await call()).roles() != before:
        raise Failed("after cancelled calls it answers something else", "let a cancelled call change nothing")
    return None


async def _gathered(calls: list[Coroutine[Any, Any, Reply]]) -> list[Reply]:
    """Await all; the finding of the first that has one."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        await asyncio.wait(tasks)
    finally:
        for task in tasks:
            task.cancel()
    failures = [error for task in tasks if isinstance(error := task.exception(), Finding)]
    if failures:
        told = f"{len(failures)} of {len(tasks)} calls at once: {failures[0].problem}"
        raise Failed(told, failures[0].remedy)
    return [task.result() for task in tasks]


def _list(kit: Kit, scope_id: str) -> Coroutine[Any, Any, Reply]:
    return kit.call("role_list", scope_ids={kit.tier.value: scope_id})


CHECKS = {"speed.list": speed, "load.many": many, "load.cancelled": cancelled}

__all__ = ["CHECKS"]
