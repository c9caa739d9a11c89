"""Translates failures of Postgres that the host must fix into errors of this package, by their codes.

It never repeats the server's text, which can contain values of a row.
"""

from __future__ import annotations

from typing import Final

import psycopg
import psycopg.errors

from ...core.errors import HostError, InvalidArgument, StorageInvalid, StorageUnavailable, WorldAgentError

RETRYABLE_CODES: Final = ("40001", "40P01")
"""Codes of a transaction that conflicted with another one, was rolled back and can be retried."""

_REMEDIES: Final = {
    "28": "correct user and password in the database's url",
    "3D": "create the database, or correct its name in the url",
    "42501": "give the url's user the right to create and change tables there",
    "25006": "use the url of the server that accepts writes",
    "53100": "free space on the server's disk",
    "53300": "raise the server's limit of connections, or start fewer agents",
    "55P03": "end the session that holds the lock, or try again when it has ended",
    "57": "try again once the server is up",
}
_INVALID: Final = ("42P01", "42703", "42804", "42P07", "42883", "22P02", "XX001", "XX002")
_UNREACHABLE_REMEDY: Final = "start the server, or correct host and port in the database's url"


def from_postgres(error: psycopg.Error, name: str) -> HostError | None:
    """The error of this package for `error`; None if `error` is a programming mistake, which it describes better."""
    code = error.sqlstate
    if code is None:
        if not isinstance(error, psycopg.OperationalError):
            return None
        return StorageUnavailable(
            f"database {name!r} cannot be reached, or the connection broke", remedy=_UNREACHABLE_REMEDY
        )
    what = f"{type(error).__name__}, SQLSTATE {code}"
    if code in _INVALID:
        return StorageInvalid(
            f"the tables in database {name!r} differ from those of this package ({what})",
            remedy="use another database, or restore this one from a copy",
        )
    for length in (5, 2):
        if code[:length] in _REMEDIES:
            return StorageUnavailable(f"database {name!r} failed ({what})", remedy=_REMEDIES[code[:length]])
    if code[:2] in ("08", "53", "58"):
        return StorageUnavailable(f"database {name!r} failed ({what})", remedy=_UNREACHABLE_REMEDY)
    return None


def not_storable(error: psycopg.DataError | UnicodeEncodeError) -> WorldAgentError | None:
    """The error for a text that Postgres cannot store; None if `error` has another cause."""
    if isinstance(error, UnicodeEncodeError):
        problem, remedy = "half a surrogate pair", "pass valid Unicode text"
    elif isinstance(error, psycopg.errors.UntranslatableCharacter) or "NUL" in str(error):
        problem, remedy = "a NUL character", "remove it"
    else:
        return None
    return InvalidArgument(f"a value for the database contains {problem}", remedy=remedy)
