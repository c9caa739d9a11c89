"""The journal of a turn's calls, and the run of a turn that uses it. This package knows no function and no policy."""

from .drive import ABOUT_THE_TURN, UNATTENDED, Drive
from .frame import Frame
from .pauses import SUSPENDED, Ask, Reply, Step, Suspended, decision_of, pause_of
from .records import JOURNAL, CallRecord, Journal, OpenReply

__all__ = [
    "ABOUT_THE_TURN",
    "JOURNAL",
    "SUSPENDED",
    "UNATTENDED",
    "Ask",
    "CallRecord",
    "Drive",
    "Frame",
    "Journal",
    "OpenReply",
    "Reply",
    "Step",
    "Suspended",
    "decision_of",
    "pause_of",
]
