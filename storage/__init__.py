"""One database, SQLite or Postgres, and one owner per thread: connect, migrate, transaction, lease (T4).

Each folder that stores data declares a `Schema` for its tables. This folder owns only two tables.
"""

from .database import Database
from .home import CONNECTIONS, MOST_CONNECTIONS, PostgresAddress, Storage
from .lease import EPOCHS, Known, Lease, Leases
from .locks import from_sqlite
from .schema import Moment, Row, Schema, Time, Transaction, checked_row, columns_of, portions, read_row

__all__ = [
    "CONNECTIONS",
    "EPOCHS",
    "MOST_CONNECTIONS",
    "Database",
    "Known",
    "Lease",
    "Leases",
    "Moment",
    "PostgresAddress",
    "Row",
    "Schema",
    "Storage",
    "Time",
    "Transaction",
    "checked_row",
    "columns_of",
    "from_sqlite",
    "portions",
    "read_row",
]
