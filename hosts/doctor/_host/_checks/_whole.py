"""What must hold of every answer of the whole check: looked at once, after all the calls."""

from __future__ import annotations

import json

from ..._outcomes import Failed, Skipped
from .._kit import Kit
from .._record import Exchange
from .._replies import CODES, CONTRACT_REMEDY, FIELDS, Reply

_SHORTEST = 12  # characters of a role's text that are no accident in another text


async def contract(kit: Kit) -> str | None:
    """Each answer names the version of the contract."""
    answers = _seen(_answers(kit))
    for reply in answers:
        said = reply.content.get("contract")
        if type(said) is not int or said != 1:
            raise Failed(f"{reply.tool} answered without contract 1", 'let each answer have "contract": 1')
    return f"{len(answers)} answers"


async def fields(kit: Kit) -> str | None:
    """Nothing stands in an answer but what the contract puts there."""
    for reply in _seen(_answers(kit)):
        own = {"code"} if reply.failed else {"roles"} if reply.tool == "role_list" else {"role"}
        more = len(reply.content.keys() - own - {"contract"})
        role = reply.content.get("role")
        more += len(role.keys() - FIELDS) if isinstance(role, dict) and not reply.failed else 0
        if more:
            raise Failed(f"an answer of {reply.tool} has {more} more fields than the contract", "leave them out")
    return None


async def texts(kit: Kit) -> str | None:
    """The texts beside the structure repeat no role."""
    known = {kit.secret, *_read(kit)}
    for reply in _seen([reply for reply in _answers(kit) if not reply.failed]):
        if any(content in text for text in reply.texts for content in known):
            raise Failed(
                f"a text block of {reply.tool} holds the role", "say how many roles there are; clients log such texts"
            )
    return None


async def codes(kit: Kit) -> str | None:
    """An error says which it is."""
    errors = [reply for reply in _answers(kit) if reply.failed]
    for reply in errors:
        if not isinstance(reply.content.get("code"), str):
            raise Failed(f"an error of {reply.tool} has no code", CONTRACT_REMEDY)
        if reply.code not in CODES:
            raise Failed(f"an error of {reply.tool} has a code that is none", f"use one of {', '.join(CODES)}")
    if not errors:
        raise _unrefused()
    return f"{len(errors)} errors"


async def values(kit: Kit) -> str | None:
    """Nothing that was sent comes back in an error."""
    # The name of a tool that is none is no value.
    refused = [each for each in kit.exchanges if each.reply.failed and kit.marker not in each.reply.tool]
    for exchange in refused:
        if _repeats(kit, exchange):
            raise Failed(f"an error of {exchange.reply.tool} repeats a value that was sent", "name the argument only")
    if not refused:
        raise _unrefused()
    return None


def _repeats(kit: Kit, exchange: Exchange) -> bool:
    sent = json.dumps(exchange.arguments, ensure_ascii=False)
    told = json.dumps(exchange.reply.result, ensure_ascii=False) + exchange.reply.said
    return any(mark in told and mark in sent for mark in (kit.marker, kit.secret))


def _read(kit: Kit) -> set[str]:
    """The texts of roles that the host gave."""
    found: set[str] = set()
    for exchange in kit.exchanges:
        roles = exchange.reply.content.get("roles")
        given = [*(roles if isinstance(roles, list) else []), exchange.reply.content.get("role")]
        contents = [role.get("content") for role in given if isinstance(role, dict)]
        found |= {text for text in contents if isinstance(text, str) and len(text) >= _SHORTEST}
    return found


def _seen(replies: list[Reply]) -> list[Reply]:
    """The replies, where there are any: of none, nothing is known."""
    if not replies:
        raise Skipped("no call was answered", "see the points that failed")
    return replies


def _unrefused() -> Skipped:
    return Skipped("no call was refused", "see the points that were left out")


def _answers(kit: Kit) -> list[Reply]:
    """The answers of the contract's tools; errors of the protocol are not theirs."""
    return [each.reply for each in kit.exchanges if each.reply.protocol is None and kit.marker not in each.reply.tool]


CHECKS = {
    "answer.contract": contract,
    "answer.fields": fields,
    "answer.text": texts,
    "error.code": codes,
    "error.values": values,
}

__all__ = ["CHECKS"]
