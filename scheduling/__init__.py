"""Schedules: when something starts, what starts, and what happens to slots that were missed or overlap (T7)."""

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
from .schedule import (
    Misfire,
    Overlap,
    Schedule,
    StartMessage,
    StartSkill,
    StartTarget,
    StartTask,
    refuse_call_role,
)
from .schedules import Schedules, Target
from .slots import Slot, find_zone, newest_slots, slots_after
from .when import Cron, Every, Once, When

__all__ = [
    "Cron",
    "DueSlots",
    "Every",
    "Misfire",
    "Once",
    "Overlap",
    "OverlapAction",
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
    "due_slots",
    "find_zone",
    "newest_slots",
    "overlap_action",
    "refuse_call_role",
    "seconds_to_next",
    "slots_after",
]
