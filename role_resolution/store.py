"""The embedded role store: a separate SQLite file, never a table of the agent's database (R9)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from ..core import STORED_TIERS, Tier, check_id
from ..core.errors import RoleNotStorable, UnknownTier
from ..storage import Database, Schema, Transaction
from .role import ROLE_LIMIT, Role, check_length

_ALL: Final = frozenset(STORED_TIERS)

_SCHEMA = Schema(
    name="role",
    migrations=(
        (
            """CREATE TABLE wa_role (
                tier TEXT NOT NULL, scope_id TEXT NOT NULL, name TEXT NOT NULL, content TEXT NOT NULL,
                PRIMARY KEY (tier, scope_id)) WITHOUT ROWID""",
        ),
    ),
)


class SqliteRoleStore:
    """`RoleStore` over one SQLite file.

    Args:
        database: The opened file; `open` makes one from a path.
        limit: The most bytes of UTF-8 in a role's content.
        tiers: The tiers that it offers.
    """

    def __init__(self, database: Database, *, limit: int = ROLE_LIMIT, tiers: frozenset[Tier] = _ALL) -> None:
        self._database = database
        self._limit = limit
        self._tiers = tiers

    @classmethod
    async def open(cls, path: Path, *, limit: int = ROLE_LIMIT, tiers: frozenset[Tier] = _ALL) -> Self:
        """Open the store at `path`. The file is made and migrated as needed.

        Raises:
            StorageUnavailable, StorageInvalid, SchemaTooNew: The file cannot be used; nothing was changed.
        """
        return cls(await Database.open(path, schemas=(_SCHEMA,)), limit=limit, tiers=tiers)

    @property
    def tiers(self) -> frozenset[Tier]:
        return self._tiers

    async def list(self, scope_ids: Mapping[Tier, str]) -> dict[Tier, Role]:
        wanted = [(tier.value, scope_id) for tier, scope_id in scope_ids.items()]
        if not wanted:
            return {}
        places = ",".join("(?,?)" for _ in wanted)
        query = f"SELECT tier, name, content FROM wa_role WHERE (tier, scope_id) IN (VALUES {places})"

        def read(tx: Transaction) -> list[tuple[Any, ...]]:
            return tx.execute(query, [value for pair in wanted for value in pair])

        return {Tier(tier): _read(name, content) for tier, name, content in await self._database.read(read)}

    async def get(self, tier: Tier, scope_id: str) -> Role | None:
        check_storable_tier(tier)
        return (await self.list({tier: check_id(f"{tier} scope", scope_id)})).get(tier)

    async def put(self, tier: Tier, scope_id: str, role: Role) -> None:
        check_storable(tier, role, self._limit)
        values = (tier.value, check_id(f"{tier} scope", scope_id), role.name, role.content)
        await self._database.transact(
            lambda tx: tx.execute(
                "INSERT INTO wa_role (tier, scope_id, name, content) VALUES (?,?,?,?)"
                " ON CONFLICT (tier, scope_id) DO UPDATE SET name = excluded.name, content = excluded.content",
                values,
            )
        )

    async def delete(self, tier: Tier, scope_id: str) -> bool:
        check_storable_tier(tier)
        values = (tier.value, check_id(f"{tier} scope", scope_id))
        gone = await self._database.transact(
            lambda tx: tx.execute("DELETE FROM wa_role WHERE tier = ? AND scope_id = ? RETURNING tier", values)
        )
        return bool(gone)

    async def aclose(self) -> None:
        """Close the file. Calling it again does nothing."""
        await self._database.aclose()


def check_storable_tier(tier: Tier) -> None:
    """Refuse the tiers that are never stored.

    Raises:
        UnknownTier: The tier is `call` or `thread`.
    """
    if tier not in STORED_TIERS:
        known = ", ".join(sorted(STORED_TIERS))
        raise UnknownTier(
            f"the {tier} role cannot be stored", remedy=f"use one of {known}, or pass the role with the call"
        )


def check_storable(tier: Tier, role: Role, limit: int) -> None:
    """Refuse a role that the stored record cannot represent (R9).

    Raises:
        UnknownTier: The tier is `call` or `thread`.
        RoleNotStorable: The role has `applies_to` or `exclusive`.
        RoleTooLong: Its content is over the limit.
    """
    check_storable_tier(tier)
    if role.applies_to or role.exclusive:
        raise RoleNotStorable(
            f"the {tier} role {role.name!r} has applies_to or exclusive, and a stored role keeps neither",
            remedy="store it without them, or pass it with the call",
        )
    check_length(role, tier, limit)


def _read(name: str | bytes, content: str) -> Role:
    """A stored role. Older versions stored any name, even bytes that are not text."""
    return Role.of_record(name if isinstance(name, str) and name.strip() else "unnamed", content)
