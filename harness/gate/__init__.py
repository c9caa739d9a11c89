"""What may be called without asking, what a person is asked for, what is refused (H9). No model, no role, no journal.

`_policy` holds the rules as data, `_predicates` what they say of arguments, `_gate` decides about one call after the
other. Whoever makes calls asks the gate, and writes down what it says.
"""

from ._approver import Approver
from ._file import load_policy, policy_in
from ._gate import CODE, Callee, Caller, Gate, Verdict
from ._policy import Decision, Policy, Rule, is_like
from ._predicates import Predicate
from ._surprises import Surprise, surprises

__all__ = [
    "CODE",
    "Approver",
    "Callee",
    "Caller",
    "Decision",
    "Gate",
    "Policy",
    "Predicate",
    "Rule",
    "Surprise",
    "Verdict",
    "is_like",
    "load_policy",
    "policy_in",
    "surprises",
]
