"""Moving what agents keep from one database to another: a home's file, or a Postgres server, in either direction.

Threads one by one are `upkeep`'s matter, and so is a backup of a home.
"""

from ._copying import Copied, Progress, copy_storage
from ._dropping import drop_copy

__all__ = ["Copied", "Progress", "copy_storage", "drop_copy"]
