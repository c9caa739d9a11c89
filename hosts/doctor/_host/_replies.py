"""What a tool answered, and what has to stand in an answer. Problems name fields and counts, never what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from .._outcomes import Failed, Finding, Skipped

CODES: Final = ("invalid", "too_long", "not_found", "forbidden", "unavailable")
FIELDS: Final = {"name", "content", "tier"}
CONTRACT_REMEDY: Final = "let it answer as docs/role-host.md says"


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one call of a tool.

    Attributes:
        tool: The tool.
        result: The result of `tools/call` as it came; empty where there is none.
        protocol: The code of an error of the protocol; None where it is a result.
        said: What such an error says.
    """

    tool: str
    result: Mapping[str, Any] = field(repr=False)
    protocol: int | None = None
    said: str = field(default="", repr=False)

    @property
    def content(self) -> Mapping[str, Any]:
        """The structured content; empty where there is none."""
        found = self.result.get("structuredContent")
        return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}

    @property
    def failed(self) -> bool:
        return self.protocol is not None or bool(self.result.get("isError"))

    @property
    def code(self) -> str | None:
        """The code of a tool error; None where there is none."""
        found = self.content.get("code")
        return found if self.failed and self.protocol is None and isinstance(found, str) else None

    @property
    def texts(self) -> list[str]:
        """The texts for people."""
        blocks = self.result.get("content")
        given: list[Any] = blocks if isinstance(blocks, list) else []
        return [block["text"] for block in given if isinstance(block, dict) and isinstance(block.get("text"), str)]

    def expect(self, code: str, when: str) -> None:
        """Hold the answer to be a tool error of this code.

        Args:
            code: The code.
            when: What was asked, such as `for an unknown tier`.

        Raises:
            Failed: It is something else.
            Skipped: It is `forbidden`, so that nothing is known.
        """
        if self.code == code:
            return
        if self.code == "forbidden" and code != "invalid":  # arguments are checked before the scope
            raise forbidden()
        raise Failed(f"{self.tool} {when} gave {self._what()} and not {code}", f"answer with the code {code}")

    def role(self) -> dict[str, Any]:
        """The role in the answer.

        Raises:
            Failed: There is none.
            Skipped: The scope is forbidden.
        """
        if self.failed:
            raise self._refused()
        found = self.content.get("role")
        problem = misfit(found)
        if problem:
            raise Failed(f"{self.tool} answered without a role: {problem}", CONTRACT_REMEDY)
        return cast("dict[str, Any]", found)

    def roles(self) -> list[Any]:
        """What stands in the list of roles.

        Raises:
            Failed: There is no list.
            Skipped: The scope is forbidden.
        """
        if self.failed:
            raise self._refused()
        found = self.content.get("roles")
        if not isinstance(found, list):
            missing = "nothing structured" if not self.content else "no list called roles"
            raise Failed(f"{self.tool} answered with {missing}", CONTRACT_REMEDY)
        return found

    def _refused(self) -> Finding:
        if self.code == "forbidden":
            return forbidden()
        return Failed(f"{self.tool} gave {self._what()}", CONTRACT_REMEDY)

    def _what(self) -> str:
        if self.protocol is not None:
            return f"an error of the protocol ({self.protocol})"
        if not self.failed:
            return "an answer that is no error"
        if self.code is None:
            return "an error without a code"
        return f"the error {self.code}" if self.code in CODES else "an error of another code"


def forbidden() -> Skipped:
    """What is said where the caller may not use the scope of the check."""
    return Skipped(
        "this caller may not use the scopes that the check makes up",
        "name one that it may use: --scope workspace=ID",
    )


def misfit(record: object) -> str:
    """Why something is no role of the contract; empty where it is one. More fields than it has are not looked at."""
    if not isinstance(record, Mapping):
        return "it is no object"
    for name in ("name", "content", "tier"):
        value = record.get(name)
        if not isinstance(value, str):
            return f"{name} is missing" if name not in record else f"{name} is no text"
        if not value.strip():
            return f"{name} is blank"
    return ""


__all__ = ["CODES", "CONTRACT_REMEDY", "FIELDS", "Reply", "forbidden", "misfit"]
