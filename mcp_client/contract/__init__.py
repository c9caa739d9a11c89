"""The contract of role hosts for who carries it another way than over a connection of its own.

What a tool is asked and how its answer is read, and the role store that goes with it. Nothing here imports `mcp`.
"""

from .._contract import CONTRACT, STORED_TIERS, Answer, Operation
from .._failures import Failure, errored, invalid
from .._store import ContractRoleStore

__all__ = ["CONTRACT", "STORED_TIERS", "Answer", "ContractRoleStore", "Failure", "Operation", "errored", "invalid"]
