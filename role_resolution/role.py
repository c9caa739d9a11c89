"""The role: an immutable value that shapes one call and cannot be stored by accident.

It is a plain class with slots on purpose. Checkpoint serialisers store dataclasses, named tuples and pydantic models
field by field, but they fail for a class that they do not know. A role in the wrong place must fail (D1).
`compose` makes one text from the roles of several tiers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from ..core.errors import RoleInvalid, RoleTooLong

ROLE_LIMIT = 32 * 1024
"""The default limit of one role's content, in bytes of UTF-8 (R15)."""

NAME_LIMIT = 200
"""The most characters in a role's name (R15)."""

_UNNAMED = "unnamed"


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

    Raises:
        RoleInvalid: The content is blank, is not text or cannot be encoded, or another argument is invalid. For an
            invalid name, the error shows only its length.
    """

    __slots__ = ("applies_to", "content", "exclusive", "name")

    name: str
    content: str
    applies_to: tuple[str, ...]
    exclusive: bool

    def __init__(self, name: str, content: str, *, applies_to: Iterable[str] = (), exclusive: bool = False) -> None:
        patterns = _patterns(applies_to)
        if not isinstance(name, str) or not name.strip():
            raise RoleInvalid("a role must have a name", remedy="give it a short label for people, such as 'critic'")
        if not is_name(name):
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
        if not _encodable(content):
            raise RoleInvalid(
                f"the content of the role {name!r} cannot be encoded as UTF-8", remedy="remove lone surrogates from it"
            )
        if not all(isinstance(pattern, str) and pattern for pattern in patterns):
            raise RoleInvalid(
                f"`applies_to` of the role {name!r} must contain only non-empty strings",
                remedy="pass glob patterns over Signature names, such as 'critic*'",
            )
        for field, value in (("name", name), ("content", content), ("applies_to", patterns), ("exclusive", exclusive)):
            object.__setattr__(self, field, bool(value) if field == "exclusive" else value)

    @classmethod
    def of_record(cls, name: str, content: str) -> Role:
        """Make a role from a stored record. A name that is too long or not printable is changed, so that no turn fails.

        Raises:
            RoleInvalid: As for `Role`.
        """
        if is_name(name) or not isinstance(name, str) or not name.strip():
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
        return (self.name, self.content, self.applies_to, self.exclusive)


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


def is_name(value: object) -> bool:
    """Whether `value` can be the name of a role."""
    return isinstance(value, str) and 0 < len(value) <= NAME_LIMIT and value.isprintable() and bool(value.strip())


def _patterns(given: object) -> tuple[object, ...]:
    if isinstance(given, Iterable) and not isinstance(given, str):
        return tuple(given)
    return (given,)


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
