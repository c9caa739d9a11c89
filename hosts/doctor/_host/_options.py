"""What a check of a role host may do and how long it may take: values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....core import STORED_TIERS, Tier, check_id
from ....core.errors import InvalidArgument


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCheckOptions:
    """How a role host is checked.

    Attributes:
        write: Whether roles may be put and deleted, in scopes of the check's own or in `scopes`.
        timeout: Seconds that connecting, and each call, may take.
        scopes: The scope to use of a tier, where the host does not let this caller use every one. With `write`, no role
            may be set in them.
        foreign: Scopes that the host must not let this caller use.
        slow: Seconds of a median `role_list` above which it fails.
        slowish: Seconds above which it is warned of.
        ending: Seconds that a host that is a program has to end in, once its input is closed.

    Raises:
        InvalidArgument: A value does not fit.
    """

    write: bool = False
    timeout: float = 10.0
    scopes: Mapping[Tier, str] = field(default_factory=dict)
    foreign: Mapping[Tier, str] = field(default_factory=dict)
    slow: float = 4.0
    slowish: float = 0.25
    ending: float = 5.0

    def __post_init__(self) -> None:
        for name, seconds in (("timeout", self.timeout), ("ending", self.ending)):
            if not 0 < seconds < float("inf"):
                raise InvalidArgument(f"{name} {seconds!r} is no time limit", remedy="give seconds, above 0")
        for tier, scope_id in (*self.scopes.items(), *self.foreign.items()):
            if tier not in STORED_TIERS:
                raise InvalidArgument(
                    f"tier {tier.value!r} is never kept by a host", remedy="use workspace, account or channel"
                )
            check_id(f"{tier} scope", scope_id)
        both = self.scopes.items() & self.foreign.items()
        if both:
            raise InvalidArgument("a scope is both one to use and a foreign one", remedy="name it once")


__all__ = ["HostCheckOptions"]
