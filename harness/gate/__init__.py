"""The gate: decides which calls run, which require approval and which are refused (H9).

`policy` has the rules as data, `predicates` their conditions on arguments, `ceiling` what a worker can reach at most,
and `gate` decides about each call. This package knows no model, no role and no journal: the code that makes a call asks
the gate and records its verdict.
"""

from .ceiling import Authority, Ceiling
from .gate import BOUNDED, CODE, Approver, Caller, Gate, Trust, Verdict, changes_something
from .labels import Sources, leaves
from .policy import Decision, Policy, Rule, is_like, load_policy, policy_in
from .predicates import Predicate
from .surprises import Surprise, openings, surprises

__all__ = [
    "BOUNDED",
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
    "Sources",
    "Surprise",
    "Trust",
    "Verdict",
    "changes_something",
    "is_like",
    "leaves",
    "load_policy",
    "openings",
    "policy_in",
    "surprises",
]
