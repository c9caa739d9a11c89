"""The gate: decides which calls run, which require approval and which are refused (H9).

`policy` has the rules as data, `predicates` their conditions on arguments, `ceiling` what a worker can reach at most,
and `gate` decides about each call. This package knows no model, no role and no journal: the code that makes a call asks
the gate and records its verdict.
"""

from .ceiling import Authority, Ceiling
from .gate import CODE, Approver, Caller, Gate, Trust, Verdict
from .policy import Decision, Policy, Rule, is_like, load_policy, policy_in
from .predicates import Predicate
from .surprises import Surprise, surprises

__all__ = [
    "CODE",
    "Approver",
    "Authority",
    "Caller",
    "Ceiling",
    "Decision",
    "Gate",
    "Policy",
    "Predicate",
    "Rule",
    "Surprise",
    "Trust",
    "Verdict",
    "is_like",
    "load_policy",
    "policy_in",
    "surprises",
]
