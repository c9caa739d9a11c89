"""The gate: decides which calls run, which require approval and which are refused (H9).

`policy` has the rules as data, `predicates` their conditions on arguments, and `gate` decides about each call. This
package knows no model, no role and no journal: the code that makes a call asks the gate and records its verdict.
"""

from .gate import CODE, Approver, Caller, Gate, Verdict
from .policy import Decision, Policy, Rule, is_like, load_policy, policy_in
from .predicates import Predicate
from .surprises import Surprise, surprises

__all__ = [
    "CODE",
    "Approver",
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
