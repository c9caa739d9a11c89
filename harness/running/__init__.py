"""What the graphs and the agent need to run calls themselves. An embedder does not need it."""

from ..function import check_name, risks, undispatched
from ..guard import OnError, guarded, harmless
from ..pipeline import Call, Prepared, apply_time_limit, call_alone, run_call
from ..questions import Question, ask_person

__all__ = [
    "Call",
    "OnError",
    "Prepared",
    "Question",
    "apply_time_limit",
    "ask_person",
    "call_alone",
    "check_name",
    "guarded",
    "harmless",
    "risks",
    "run_call",
    "undispatched",
]
