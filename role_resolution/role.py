"""The role: an immutable value that shapes one call and cannot be stored by accident.

The roles of several tiers are composed into one text per Signature, once, before anything runs (R3, R4, R6).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from fnmatch import fnmatchcase
from functools import wraps
from inspect import iscoroutinefunction, isfunction, signature
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeVar, get_args

from ..core import Tier
from ..core.errors import RoleInvalid, RoleTooLong
from ..core.validation import is_line, is_text

ROLE_LIMIT = 32 * 1024
"""The default limit of one role's content, in bytes of UTF-8 (R15)."""

NAME_LIMIT = 200
"""The most characters in a role's name (R15)."""

_UNNAMED = "unnamed"

T = TypeVar("T")

Echo = Literal["disclosure", "strict", "fail", "allow"]
"""What happens if an answer gives a role back (R16)."""

ECHOES: Final[tuple[Echo, ...]] = get_args(Echo)


class RolePart(NamedTuple):
    """The text of one tier of a composed role, and its own `echo`. Its repr shows no text."""

    text: str
    echo: Echo | None

    def __repr__(self) -> str:
        return f"RolePart(<{len(self.text)} characters>, {self.echo!r})"


class Sealed:
    """A value that does not show its content and cannot be serialised by pickle, jsonpickle, pydantic or msgpack."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable; make a new one")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable; make a new one")

    def __str__(self) -> str:
        return repr(self)

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(f"{type(self).__name__} must not be serialised; resolve the role again where it is needed")

    def __reduce__(self) -> NoReturn:
        self.__reduce_ex__(0)

    def __getstate__(self) -> NoReturn:
        # Serialisers that do not use `__reduce_ex__`, such as jsonpickle, call this.
        self.__reduce_ex__(0)

    def __copy__(self) -> Sealed:
        return self

    def __deepcopy__(self, memo: object) -> Sealed:
        return self

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        def refuse(value: object) -> NoReturn:
            raise ValueError(f"{cls.__name__} must not be serialised; resolve the role again where it is needed")

        return core_schema.is_instance_schema(
            cls, serialization=core_schema.plain_serializer_function_ser_schema(refuse)
        )


class Role(Sealed):
    """A text that says how to handle one call (R1).

    Args:
        name: A label for people: 1 to 200 printable characters, not only blanks. It is never sent to a model.
        content: The text that reaches the model, as the last input field of the entry Signature.
        applies_to: Glob patterns over Signature names. Empty (the default) means only the entry Signature.
        exclusive: Whether to drop every tier below this role's own (R4).
        echo: What happens if an answer gives the content back (R16): `disclosure`, `strict`, `fail` or `allow`, as the
            setting `echo` explains. None is that setting of the agent.

    Raises:
        RoleInvalid: The content is blank, is not text or cannot be encoded, or another argument is invalid. For an
            invalid name, the error shows only its length.
    """

    __slots__ = ("applies_to", "content", "echo", "exclusive", "name")

    name: str
    content: str
    applies_to: tuple[str, ...]
    exclusive: bool
    echo: Echo | None

    def __init__(
        self,
        name: str,
        content: str,
        *,
        applies_to: Iterable[str] = (),
        exclusive: bool = False,
        echo: Echo | None = None,
    ) -> None:
        patterns = _patterns(applies_to)
        if not isinstance(name, str) or not name.strip():
            raise RoleInvalid("a role must have a name", remedy="give it a short label for people, such as 'critic'")
        if not is_line(name, NAME_LIMIT):
            raise RoleInvalid(
                f"the name of a role must be 1 to {NAME_LIMIT} printable characters, not only blanks, "
                f"got one of {len(name)} characters",
                remedy="give it a short label for people, such as 'critic'",
            )
        if not isinstance(content, str):
            raise RoleInvalid(
                f"the content of the role {name!r} must be a string, got {type(content).__name__}",
                remedy="pass its content as text",
            )
        if not content.strip():
            raise RoleInvalid(f"the role {name!r} has no content", remedy="pass a text, or leave the role out")
        if not is_text(content):
            raise RoleInvalid(
                f"the content of the role {name!r} cannot be encoded as UTF-8", remedy="remove lone surrogates from it"
            )
        if not all(isinstance(pattern, str) and pattern for pattern in patterns):
            raise RoleInvalid(
                f"`applies_to` of the role {name!r} must contain only non-empty strings",
                remedy="pass glob patterns over Signature names, such as 'critic*'",
            )
        if echo is not None and echo not in ECHOES:
            raise RoleInvalid(
                f"`echo` of the role {name!r} is not one of its values", remedy=f"use one of: {', '.join(ECHOES)}"
            )
        given = {"name": name, "content": content, "applies_to": patterns, "exclusive": bool(exclusive), "echo": echo}
        for field, value in given.items():
            object.__setattr__(self, field, value)

    @classmethod
    def of_record(cls, name: str, content: str) -> Role:
        """Make a role from a stored record. A name that is too long or not printable is changed, so that no turn fails.

        Raises:
            RoleInvalid: As for `Role`.
        """
        if is_line(name, NAME_LIMIT) or not isinstance(name, str) or not name.strip():
            return cls(name, content)
        plain = "".join(mark if mark.isprintable() else " " for mark in name[: 2 * NAME_LIMIT]).strip()
        return cls((plain if len(plain) <= NAME_LIMIT else plain[: NAME_LIMIT - 1] + "…") or _UNNAMED, content)

    def __repr__(self) -> str:
        return f"Role({self.name!r}, <{len(self.content)} characters>)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Role) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return (self.name, self.content, self.applies_to, self.exclusive, self.echo)


def check_length(role: Role, tier: str, limit: int) -> None:
    """Refuse a role whose content is over the limit (R15).

    Args:
        role: The role to check.
        tier: The tier it comes from, for the error's text.
        limit: The most bytes of UTF-8.

    Raises:
        RoleTooLong: The content is longer; the text names the tier and both lengths.
    """
    if len(role.content) * 4 <= limit:
        return
    size = len(role.content.encode("utf-8"))
    if size > limit:
        raise RoleTooLong(
            f"the {tier} role has {size} bytes, and the limit is {limit}",
            remedy="shorten it, or raise the setting role_limit",
        )


def _patterns(given: object) -> tuple[object, ...]:
    if isinstance(given, Iterable) and not isinstance(given, str):
        return tuple(given)
    return (given,)


# --- composed roles ---------------------------------------------------------------------------------------------------

Policy = Literal["stack", "block"]

STACK_HEADER = "Several sets of instructions follow, the most general first. Where they conflict, the later one wins."
"""The text before a stack of two or more roles (R4)."""

_LABEL = re.compile(rf"^(\[\\*)(?=(?:{'|'.join(tier.value for tier in Tier)})\]\s*$)", re.MULTILINE)


class ResolvedRole(Sealed):
    """The composed role text of a turn for each of its Signatures, or none (R3). Only `reveal` shows a text.

    Attributes:
        tiers: The tiers that are active for at least one Signature, lowest precedence first.
    """

    __slots__ = ("_parts", "_sent", "_texts", "_tiers_of", "tiers")

    tiers: tuple[Tier, ...]
    _texts: dict[str, str]
    _tiers_of: dict[str, tuple[Tier, ...]]
    _parts: dict[Tier, RolePart]
    _sent: set[Tier]

    def __init__(
        self,
        texts: Mapping[str, str],
        tiers: tuple[Tier, ...],
        tiers_of: Mapping[str, tuple[Tier, ...]] = MappingProxyType({}),
        parts: Mapping[Tier, RolePart] = MappingProxyType({}),
    ) -> None:
        """Make it of the texts by Signature, all tiers, the tiers of each Signature, and the text of each tier."""
        object.__setattr__(self, "_texts", dict(texts))
        object.__setattr__(self, "tiers", tiers)
        object.__setattr__(self, "_tiers_of", dict(tiers_of))
        object.__setattr__(self, "_parts", dict(parts))
        object.__setattr__(self, "_sent", set())

    @property
    def sent(self) -> tuple[Tier, ...]:
        """The tiers that were revealed for a model so far, lowest precedence first."""
        return (
            self.tiers
            if len(self._sent) == len(self.tiers)
            else tuple(each for each in self.tiers if each in self._sent)
        )

    def reveal(self, signature: str) -> str | None:
        """The composed text for `signature`, or None. Call it only to pass the text to the model."""
        text = self._texts.get(signature)
        if text is not None:
            self._sent.update(self._tiers_of.get(signature, self.tiers))
        return text

    def reveal_parts(self, signature: str) -> tuple[RolePart, ...]:
        """The text of each tier that is active for `signature`. Use it only to withhold them."""
        return tuple(self._parts[tier] for tier in self._tiers_of.get(signature, ()))

    @property
    def allows_echo(self) -> bool:
        """Whether answers can give the text of a tier back."""
        return any(part.echo == "allow" for part in self._parts.values())

    def reveal_all(self) -> dict[str, str]:
        """The composed texts by Signature. Use it only for the keyed digest, and to withhold them."""
        return dict(self._texts)

    def __repr__(self) -> str:
        return f"ResolvedRole({', '.join(self.tiers) or 'none'})"


NO_ROLE = ResolvedRole({}, ())


def active_tiers(
    roles: Mapping[Tier, Role], signature: str, *, entry: str | tuple[str, ...], policy: Policy
) -> tuple[tuple[Tier, ...], dict[Tier, str]]:
    """The tiers that are active for one Signature, by the order of rules in R4.

    Args:
        roles: The roles of the turn by tier.
        signature: The Signature's name.
        entry: The name of the turn's entry Signature. There are several if a task dispatches others under its own role,
            and none if no model is called.
        policy: `stack` or `block`, for more than one applicable tier.

    Returns:
        The active tiers, lowest precedence first, and the reason for every other tier: `not_applicable` or `blocked`.
    """
    entries = (entry,) if isinstance(entry, str) else entry
    left: list[Tier] = []
    dropped: dict[Tier, str] = {}
    closed = False
    for tier in Tier:
        role = roles.get(tier)
        if role is None:
            continue
        if not _applies(role, signature, entries):
            dropped[tier] = "not_applicable"
        elif closed:
            dropped[tier] = "blocked"
        else:
            left.append(tier)
            closed = role.exclusive or policy == "block"
    return tuple(reversed(left)), dropped


def compose(
    roles: Mapping[Tier, Role], *, entry: str | tuple[str, ...], signatures: Iterable[str], policy: Policy
) -> ResolvedRole:
    """Compose the role text of every Signature of a turn.

    Args:
        roles: The roles of the turn by tier.
        entry: The name of the turn's entry Signature, or several, or none.
        signatures: The names of its other Signatures.
        policy: `stack` or `block`.

    Raises:
        RoleInvalid: A role is for a predictor that a module of the turn does not have.
    """
    if not roles:
        return NO_ROLE
    texts: dict[str, str] = {}
    tiers_of: dict[str, tuple[Tier, ...]] = {}
    rendered: dict[tuple[Tier, ...], str] = {}
    entries = (entry,) if isinstance(entry, str) else entry
    names: Iterable[str] = entries
    if any(role.applies_to for role in roles.values()):
        names = dict.fromkeys((*entries, *signatures))
        _check_paths(roles.values(), entries, names)
    for name in names:
        tiers, _ = active_tiers(roles, name, entry=entries, policy=policy)
        if tiers:
            if tiers not in rendered:
                rendered[tiers] = _render(roles, tiers)
            texts[name], tiers_of[name] = rendered[tiers], tiers
    used = {tier for tiers in tiers_of.values() for tier in tiers}
    parts = {tier: RolePart(roles[tier].content, roles[tier].echo) for tier in used}
    return ResolvedRole(texts, tuple(tier for tier in reversed(Tier) if tier in used), tiers_of, parts)


def _check_paths(roles: Iterable[Role], entries: tuple[str, ...], names: Iterable[str]) -> None:
    """Refuse a pattern `ENTRY.PATH` for a module with this entry Signature if none of its predictors matches."""
    for entry in entries:
        paths = [name for name in names if name.startswith(f"{entry}.")]
        for role in roles if paths else ():
            for pattern in role.applies_to:
                if pattern.startswith(f"{entry}.") and not any(fnmatchcase(path, pattern) for path in paths):
                    raise RoleInvalid(
                        f"`applies_to` of the role {role.name!r} has {pattern!r}, but the module has no such predictor",
                        remedy=f"use {' or '.join(paths)}, or {entry} for the predictors that have its fields",
                    )


def check_applies(role: Role, known: Collection[str]) -> None:
    """Refuse a pattern of `applies_to` that fits no Signature, because it is usually misspelt.

    A pattern with a predictor of a module, `SIGNATURE.PATH`, only needs the Signature; `compose` checks the rest.

    Args:
        role: The role.
        known: The names of all Signatures of the agent.

    Raises:
        RoleInvalid: There is one; the text has the names.
    """
    for pattern in role.applies_to:
        heads = {pattern, pattern.partition(".")[0]}
        if not any(fnmatchcase(name, head) for name in known for head in heads):
            raise RoleInvalid(
                f"`applies_to` of the role {role.name!r} has {pattern!r}, but this agent has no such Signature",
                remedy=f"use one of: {', '.join(sorted(known))}",
            )


def _applies(role: Role, signature: str, entries: tuple[str, ...]) -> bool:
    if not role.applies_to:
        return signature in entries
    return any(fnmatchcase(signature, pattern) for pattern in role.applies_to)


def _render(roles: Mapping[Tier, Role], tiers: tuple[Tier, ...]) -> str:
    if len(tiers) == 1:
        return roles[tiers[0]].content
    # A line of a role that looks like a label gets a backslash, so that no tier can pose as a higher one.
    parts = [f"[{tier.value}]\n" + _LABEL.sub(r"\1\\", roles[tier].content) for tier in tiers]
    return "\n\n".join((STACK_HEADER, *parts))


def check_role(role: object) -> Role:
    """Return `role` if it is a `Role`.

    Raises:
        RoleInvalid: It is of another type; its value is not shown.
    """
    if isinstance(role, Role):
        return role
    raise _not_a_role(role)


def _not_a_role(given: object) -> RoleInvalid:
    return RoleInvalid(
        f"`role` must be a Role, got a {type(given).__name__}", remedy="make it with Role(name, content)"
    )


def refuses_texts(owner: type[T]) -> type[T]:
    """Make a class and its public methods refuse a `role` that is not a Role before they run (R7).

    A person who passes a text instead of a Role gets `RoleInvalid`. The text is then in no local variable of a frame of
    this package, which programs that report errors with the variables of each frame would store.
    """
    for name, method in list(vars(owner).items()):
        public = isfunction(method) and (name == "__init__" or not name.startswith("_"))
        if public and "role" in (names := list(signature(method).parameters)):
            checked = _checking(method, names.index("role"))
            checked.__name__, checked.__qualname__ = name, f"{owner.__qualname__}.{name}"
            setattr(owner, name, checked)
    return owner


def _checking(method: Callable[..., Any], place: int) -> Callable[..., Any]:
    def problem(given: Sequence[Any], named: Mapping[str, Any]) -> RoleInvalid | None:
        role = named["role"] if "role" in named else given[place] if len(given) > place else None
        # An enumeration has the constant that says that nothing was passed.
        return None if role is None or isinstance(role, Role | Enum) else _not_a_role(role)

    if iscoroutinefunction(method):

        @wraps(method)
        async def checked_later(*given: Any, **named: Any) -> Any:
            if (error := problem(given, named)) is not None:
                del given, named
                raise error
            return await method(*given, **named)

        return checked_later

    @wraps(method)
    def checked(*given: Any, **named: Any) -> Any:
        if (error := problem(given, named)) is not None:
            del given, named
            raise error
        return method(*given, **named)

    return checked
