"""What may be called without asking, what a person is asked for, what is refused (H9). No model, no role, no journal.

`policy` holds the rules as data, `predicates` what they say of arguments, `gate` decides about one call after the
other. Whoever makes calls asks the gate, and writes down what it says.
"""

from .approver import Approver
from .file import load_policy, policy_in
from .gate import CODE, Callee, Caller, Gate, Verdict
from .policy import Decision, Policy, Rule, is_like
from .predicates import Predicate
from .surprises import Surprise, surprises

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
