"""Copies of whole databases, between the engines too: what they consist of, and the mark of one that is not finished.

Which tables an agent has, and when a copy may begin, is said by `agent.copying`.
"""

from .._schema import COPYING
from ._alone import copying_alone
from ._mark import Mark
from ._part import Check, Held, Key, Part
from ._rows import TableCopy
from ._tables import Table, tables_of

__all__ = ["COPYING", "Check", "Held", "Key", "Mark", "Part", "Table", "TableCopy", "copying_alone", "tables_of"]
