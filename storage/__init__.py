"""One database, SQLite or Postgres, and one owner per thread: connect, migrate, transaction, lease (T4).

What is stored belongs to the folders that declare a `Schema`; this one knows no table but its own two.
"""

from ._address import CONNECTIONS, MOST_CONNECTIONS, PostgresAddress
from ._database import Database
from ._failures import from_sqlite
from ._home import Storage
from ._lease import Known, Lease
from ._leases import EPOCHS, Leases
from ._rows import Moment, Row, check_row
from ._schema import Schema
from ._transaction import Transaction

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
    "Transaction",
    "check_row",
    "from_sqlite",
]
