"""What the graphs and the agent need to run calls themselves. An embedder does not need it."""

from ..function import check_name, risks, undispatched
from ..guard import OnError, guarded, harmless
from ..pipeline import Call, Prepared, call_alone, run_call, timely
from ..questions import Question, ask_person

__all__ = [
    "Call",
    "OnError",
    "Prepared",
    "Question",
    "ask_person",
    "call_alone",
    "check_name",
    "guarded",
    "harmless",
    "risks",
    "run_call",
    "timely",
    "undispatched",
]
