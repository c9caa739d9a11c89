"""The result of a scan for roles. It never contains the text of a role."""

from __future__ import annotations

from dataclasses import dataclass

_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The first place where one canary was found in one encoding.

    Attributes:
        place: File, `file: table.column, row`, or path into an object.
        encoding: The encoding of the text: `utf-8`, `json`, `repr`, `utf-16-le`, `utf-16-be`, `base64`, `hex`.
        canary: The number of the canary, counted from 0.
        length: How many characters of the canary occur there in a row.
        offset: Where the run begins, in bytes from the start of the place.
    """

    place: str
    encoding: str
    canary: int
    length: int
    offset: int

    def __str__(self) -> str:
        return f"{self.place}, byte {self.offset}: {self.length} characters of canary {self.canary} as {self.encoding}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanReport:
    """The extent of a scan, and its findings.

    Attributes:
        bytes_scanned: Total bytes of all files, database values and texts.
        places: The number of files, database values and texts.
        findings: The findings, at most one for each place, canary and encoding.
        raw_only: SQLite files that could not be opened as databases, so that only their bytes were searched.
    """

    bytes_scanned: int
    places: int
    findings: tuple[Finding, ...]
    raw_only: tuple[str, ...] = ()


class RoleLeak(AssertionError):
    """Text of a role was found where none is allowed (R7).

    Attributes:
        report: The full report.
    """

    def __init__(self, report: ScanReport) -> None:
        shown = [f"\n  {finding}" for finding in report.findings[:_LINES]]
        more = len(report.findings) - len(shown)
        rest = f"\n  and {more} more" if more > 0 else ""
        super().__init__(f"text of a role was found {len(report.findings)} times:{''.join(shown)}{rest}")
        self.report = report

    def __reduce__(self) -> tuple[type[RoleLeak], tuple[ScanReport]]:
        return (RoleLeak, (self.report,))
