"""What a spawn signal counts in the episodes of a member (A15). Pure data: no model, no database."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from ...core import canonical_json
from ...core.checks import thawed

if TYPE_CHECKING:
    from ...memory.entries import Episode
    from ..data.workspace import Metric, SpawnCondition


def within_days(episodes: Iterable[Episode], days: int, now: datetime) -> list[Episode]:
    """The episodes that ended in the last days, with one that ended exactly so long ago, and none of the future."""
    since = now - timedelta(days=days)
    return [each for each in episodes if since <= each.at <= now]


def measure(condition: SpawnCondition, episodes: Iterable[Episode], now: datetime) -> float:
    """What a condition's metric comes to in its window.

    Args:
        condition: The condition.
        episodes: Episodes of one member, of any time.
        now: The end of the window.
    """
    return _METRICS[condition.metric](condition, within_days(episodes, condition.window_days, now))


def commonest(values: Iterable[tuple[str, float]]) -> str | None:
    """The value that comes most often; of equals the one with the most seconds, and then the first in order.

    Args:
        values: Each value with the seconds of its episode.
    """
    counts, seconds = Counter[str](), defaultdict[str, float](float)
    for value, spent in values:
        counts[value] += 1
        seconds[value] += spent
    return min(counts, key=lambda each: (-counts[each], -seconds[each], each), default=None)


def value_of(episode: Episode, where: str) -> str | None:
    """What an episode has at `tag:NAME` or `payload:NAME`, as text; None if it has no text and no number there."""
    kind, _, name = where.partition(":")
    found: Any = (episode.tags if kind == "tag" else episode.payload).get(name)
    return str(found) if isinstance(found, str | int | float) and not isinstance(found, bool) else None


def commonest_at(episodes: Iterable[Episode], where: str) -> str | None:
    """The commonest value of some episodes at `tag:NAME` or `payload:NAME`."""
    found = ((value_of(each, where), each.seconds) for each in episodes)
    return commonest((value, seconds) for value, seconds in found if value is not None)


def _by_tag(condition: SpawnCondition, episodes: Sequence[Episode]) -> float:
    counts = Counter(each.tags[condition.tag_field] for each in episodes if condition.tag_field in each.tags)
    return max(counts.values(), default=0)


def _time_share(condition: SpawnCondition, episodes: Sequence[Episode]) -> float:
    name = condition.tag_field
    value, total = commonest_at(episodes, f"tag:{name}"), sum(each.seconds for each in episodes)
    spent = sum(each.seconds for each in episodes if value is not None and each.tags.get(name) == value)
    return spent / total if total else 0.0


def _entities(condition: SpawnCondition, episodes: Sequence[Episode]) -> float:
    found = (each.payload.get(condition.field) for each in episodes)
    return len({canonical_json(thawed(each)) for each in found if each is not None})


def _payload_field(condition: SpawnCondition, episodes: Sequence[Episode]) -> float:
    found = (each.payload.get(condition.field) for each in episodes)
    return sum(
        isinstance(each, int | float) and not isinstance(each, bool) and each >= condition.min_value for each in found
    )


_METRICS: Final[Mapping[Metric, Callable[[SpawnCondition, Sequence[Episode]], float]]] = {
    "episodes_by_tag": _by_tag,
    "time_share": _time_share,
    "unique_entities": _entities,
    "payload_field": _payload_field,
}
