"""The role: an immutable value that shapes one call and that nothing can store by accident.

It is a plain class with slots on purpose. Checkpoint serialisers store dataclasses, named tuples and pydantic models
field by field; a value they do not know makes them fail, which is what a role in the wrong place should do (D1).
How roles of several tiers become one text is in `compose`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from ..core.errors import RoleInvalid, RoleTooLong

ROLE_LIMIT = 32 * 1024
"""Default limit of one role's content, in bytes of UTF-8 (R15)."""

NAME_LIMIT = 200
"""Most characters of a role's name (R15)."""

_UNNAMED = "unnamed"


class Sealed:
    """A value that shows nothing and refuses to be written out: by pickle, jsonpickle, pydantic, msgpack."""

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
        # Serialisers that do not go by `__reduce_ex__`, such as jsonpickle, ask for the state.
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
    """How one call should be gone about (R1).

    Args:
        name: A label for people: 1 to 200 printable characters, not only blanks. It is never sent to a model.
        content: The text that reaches the model, as the last input field of the entry Signature.
        applies_to: Glob patterns over Signature names. Empty (the default) means the entry Signature alone.
        exclusive: Drop every tier below this role's own (R4).

    Raises:
        RoleInvalid: The content is blank, is not text or cannot be encoded, or another argument does not fit. Of a name
            that does not fit only the length is shown.
    """

    __slots__ = ("applies_to", "content", "exclusive", "name")

    name: str
    content: str
    applies_to: tuple[str, ...]
    exclusive: bool

    def __init__(self, name: str, content: str, *, applies_to: Iterable[str] = (), exclusive: bool = False) -> None:
        patterns = _patterns(applies_to)
        if not isinstance(name, str) or not name.strip():
            raise RoleInvalid("a role has no name", remedy="give it a short label for people, such as 'critic'")
        if not is_name(name):
            raise RoleInvalid(
                f"a role has a name of {len(name)} characters that is too long or cannot be printed",
                remedy=f"give it 1 to {NAME_LIMIT} printable characters, not only blanks, such as 'critic'",
            )
        if not isinstance(content, str):
            raise RoleInvalid(
                f"the role {name!r} has content of type {type(content).__name__}", remedy="give its content as text"
            )
        if not content.strip():
            raise RoleInvalid(f"the role {name!r} has no content", remedy="give it some, or leave the role out")
        if not _encodable(content):
            raise RoleInvalid(
                f"the role {name!r} cannot be encoded as UTF-8", remedy="take lone surrogates out of its content"
            )
        if not all(isinstance(pattern, str) and pattern for pattern in patterns):
            raise RoleInvalid(
                f"the role {name!r} has something else than patterns in applies_to",
                remedy="give glob patterns over Signature names, such as 'critic*'",
            )
        for field, value in (("name", name), ("content", content), ("applies_to", patterns), ("exclusive", exclusive)):
            object.__setattr__(self, field, bool(value) if field == "exclusive" else value)

    @classmethod
    def of_record(cls, name: str, content: str) -> Role:
        """A role as somebody stored it. A name that is too long or cannot be printed is changed: it must fail no turn.

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
    """Hold a role to the limit of its content (R15).

    Args:
        role: The role to look at.
        tier: The tier it comes from, for the error's text.
        limit: Bytes of UTF-8.

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
    """Whether a role can be called this."""
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
