"""Schedules: when something starts, what starts, and what happens to slots that were missed or overlap (T7)."""

from ..agent.starts import StartMessage, StartSkill, StartTask
from ..memory.schedules import ScheduleRun
from .queue import Queue, RateLimit, check_shared
from .schedule import Misfire, Overlap, Schedule, StartEvent, StartTarget
from .schedules import Schedules, Target
from .slots import Slot
from .when import Cron, Every, Once, When
from .worker import QueueWorker

__all__ = [
    "Cron",
    "Every",
    "Misfire",
    "Once",
    "Overlap",
    "Queue",
    "QueueWorker",
    "RateLimit",
    "Schedule",
    "ScheduleRun",
    "Schedules",
    "Slot",
    "StartEvent",
    "StartMessage",
    "StartSkill",
    "StartTarget",
    "StartTask",
    "Target",
    "When",
    "check_shared",
]
