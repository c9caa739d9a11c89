"""`Database` and the locks of threads over a Postgres server. It needs the extra `postgres`."""

from .database import AdvisoryLocks, PostgresDatabase
from .session import arguments, from_postgres, not_storable

__all__ = ["AdvisoryLocks", "PostgresDatabase", "arguments", "from_postgres", "not_storable"]
