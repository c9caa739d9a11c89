"""Schedules: the slots at which something starts (T7)."""

from .slots import Slot, find_zone, newest_slots, slots_after
from .when import Cron, Every, Once, When

__all__ = ["Cron", "Every", "Once", "Slot", "When", "find_zone", "newest_slots", "slots_after"]
