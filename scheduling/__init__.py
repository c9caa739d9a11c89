"""Schedules: when something starts, what starts, and what happens to slots that were missed or overlap (T7)."""

from ..agent.starts import StartMessage, StartSkill, StartTask
from ..memory.schedules import ScheduleRun
from .policies import (
    DueSlots,
    OverlapAction,
    RunState,
    SkippedSlots,
    due_slots,
    overlap_action,
    seconds_to_next,
)
from .queue import Queue, RateLimit
from .schedule import (
    Misfire,
    Overlap,
    Schedule,
    StartTarget,
    refuse_call_role,
)
from .schedules import Schedules, Target
from .slots import Slot, find_zone, newest_slots, slots_after
from .when import Cron, Every, Once, When
from .worker import Worker

__all__ = [
    "Cron",
    "DueSlots",
    "Every",
    "Misfire",
    "Once",
    "Overlap",
    "OverlapAction",
    "Queue",
    "RateLimit",
    "RunState",
    "Schedule",
    "ScheduleRun",
    "Schedules",
    "SkippedSlots",
    "Slot",
    "StartMessage",
    "StartSkill",
    "StartTarget",
    "StartTask",
    "Target",
    "When",
    "Worker",
    "due_slots",
    "find_zone",
    "newest_slots",
    "overlap_action",
    "refuse_call_role",
    "seconds_to_next",
    "slots_after",
]
