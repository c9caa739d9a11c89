"""The children that members' episodes speak for, until a person or the policy decides about each (A15)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ...core import canonical_json
from ...core.checks import check_texts, to_json
from ...storage import Transaction
from ..data.rows import read_as
from ..data.store import WorkspaceStore
from ..data.workspace import SpawnRecommendation

_OPEN: Final = """SELECT member, body, at FROM wa_recommendation WHERE workspace=? AND member=?
                  ORDER BY at, template, signal"""
_ADD: Final = """INSERT INTO wa_recommendation(workspace, member, template, signal, body, at) VALUES(?, ?, ?, ?, ?, ?)
                 ON CONFLICT DO NOTHING"""
_OF_TEMPLATE: Final = "SELECT body FROM wa_recommendation WHERE workspace=? AND template=?"
_CLOSE: Final = "DELETE FROM wa_recommendation WHERE workspace=? AND member=? AND template=?"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRecommendation:
    """A recommendation that waits for a decision.

    Attributes:
        member: The member that would make the child.
        recommendation: The recommendation, as it was when its signal fired.
        at: When that was.
    """

    member: str
    recommendation: SpawnRecommendation
    at: datetime


class Recommendations:
    """The open recommendations of a workspace's members. One is over once the member has spawned of its template.

    Args:
        store: The database of the workspace.
    """

    def __init__(self, store: WorkspaceStore) -> None:
        self._store = store

    async def open(self, member: str) -> tuple[OpenRecommendation, ...]:
        """Return the open recommendations of a member, the oldest first."""
        check_texts(member=member)
        rows = await self._store.read(lambda tx: tx.execute(_OPEN, (self._store.id, member)))
        return tuple(
            OpenRecommendation(
                member=id_,
                recommendation=read_as(SpawnRecommendation, json.loads(body)),
                at=datetime.fromtimestamp(at, UTC),
            )
            for id_, body, at in rows
        )

    async def add(self, member: str, found: Iterable[SpawnRecommendation]) -> tuple[OpenRecommendation, ...]:
        """Open recommendations; one that is open stays as it is. Returns all that are open.

        Args:
            member: The member.
            found: The recommendations.
        """
        check_texts(member=member)
        given, now = [*found], self._store.clock.now().timestamp()

        def work(tx: Transaction) -> None:
            for each in given:
                body = canonical_json(to_json(each))
                tx.execute(_ADD, (self._store.id, member, each.template_id, each.signal_id, body, now))

        if given:
            await self._store.transact(work)
        return await self.open(member)

    async def dismiss(self, member: str, template_id: str) -> None:
        """Close the recommendations of a member for a template. They open again when their signal fires again."""
        check_texts(member=member, template_id=template_id)
        await self._store.transact(lambda tx: close_recommendations(tx, self._store.id, member, template_id))


def untrusted_in(tx: Transaction, workspace: str, template_id: str, params: Collection[str]) -> set[str]:
    """The untrusted content that params of a template come from, if open recommendations suggest them.

    Args:
        tx: The transaction.
        workspace: The workspace.
        template_id: The template.
        params: The values of the params.
    """
    rows = tx.execute(_OF_TEMPLATE, (workspace, template_id))
    found: list[SpawnRecommendation] = [read_as(SpawnRecommendation, json.loads(body)) for (body,) in rows]
    return {mark for each in found if {*each.suggested_params.values()} & {*params} for mark in each.untrusted}


def close_recommendations(tx: Transaction, workspace: str, member: str, template_id: str) -> None:
    """Close the recommendations of a member for a template, in a transaction."""
    tx.execute(_CLOSE, (workspace, member, template_id))
