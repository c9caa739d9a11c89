"""`Database` and the locks of threads over a Postgres server. It needs the extra `postgres`."""

from ._database import PostgresDatabase
from ._failures import from_postgres, not_storable
from ._locks import AdvisoryLocks
from ._session import arguments

__all__ = ["AdvisoryLocks", "PostgresDatabase", "arguments", "from_postgres", "not_storable"]
