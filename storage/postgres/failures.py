"""Which failures of Postgres are the host's to mend, and what they are told. No text of the server's is repeated.

The server's texts may hold values of the row it complains about; its codes tell what happened.
"""

from __future__ import annotations

from typing import Final

import psycopg
import psycopg.errors

from ...core.errors import HostError, InvalidArgument, StorageInvalid, StorageUnavailable, WorldAgentError

AGAIN: Final = ("40001", "40P01")
"""Codes of a transaction that was rolled back and may be run again: another one was in the way."""

_REMEDIES: Final = {
    "28": "mend user and password in the database's url",
    "3D": "make the database, or mend its name in the url",
    "42501": "give the url's user the right to create and change tables there",
    "25006": "give the url of the server that takes writes",
    "53100": "free space on the server's disk",
    "53300": "let the server take more connections, or start fewer agents",
    "55P03": "end the session that holds the lock, or try again when that is done",
    "57": "try again once the server is up",
}
_INVALID: Final = ("42P01", "42703", "42804", "42P07", "42883", "22P02", "XX001", "XX002")
_REACH: Final = "start the server, or mend host and port in the database's url"


def from_postgres(error: psycopg.Error, name: str) -> HostError | None:
    """The typed error that stands for `error`; None where a programmer is to blame and `error` itself says more."""
    code = error.sqlstate
    if code is None:
        if not isinstance(error, psycopg.OperationalError):
            return None
        return StorageUnavailable(f"database {name!r} cannot be reached, or the connection broke", remedy=_REACH)
    what = f"{type(error).__name__}, SQLSTATE {code}"
    if code in _INVALID:
        return StorageInvalid(
            f"the tables in database {name!r} are not as this package makes them ({what})",
            remedy="use another database, or restore this one from a copy",
        )
    for length in (5, 2):
        if code[:length] in _REMEDIES:
            return StorageUnavailable(f"database {name!r} failed ({what})", remedy=_REMEDIES[code[:length]])
    if code[:2] in ("08", "53", "58"):
        return StorageUnavailable(f"database {name!r} failed ({what})", remedy=_REACH)
    return None


def not_storable(error: psycopg.DataError | UnicodeEncodeError) -> WorldAgentError | None:
    """The typed error for a text that Postgres cannot hold; None where `error` is about something else."""
    if isinstance(error, UnicodeEncodeError):
        problem, remedy = "half a surrogate pair", "replace what is not valid Unicode text"
    elif isinstance(error, psycopg.errors.UntranslatableCharacter) or "NUL" in str(error):
        problem, remedy = "a NUL character", "take it out"
    else:
        return None
    return InvalidArgument(f"a value for the database holds {problem}", remedy=remedy)
