"""The scan finds any 40 characters of a canary in a row, however they were written, and nothing shorter."""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.leaks import LONG, awkward_canary, canary
from worldagent.core import ECHO_RUN
from worldagent.core.errors import InvalidArgument
from worldagent.testing import scan as scan_module
from worldagent.testing import scan_for_roles

AWKWARD = awkward_canary(300)
MIDDLE = canary(130)


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


ENCODERS: dict[str, Callable[[str], bytes]] = {
    "utf-8": str.encode,
    "json": lambda text: json.dumps({"k": text}).encode(),
    "json, not ascii": lambda text: json.dumps({"k": text}, ensure_ascii=False).encode(),
    "json, upper case": lambda text: re.sub(
        rb"\\u[0-9a-f]{4}", lambda found: rb"\u" + found[0][2:].upper(), json.dumps(text).encode()
    ),
    "json in json": lambda text: json.dumps([json.dumps(text)]).encode(),
    "json in json, not ascii": lambda text: _dumps(_dumps({"k": text})).encode(),
    "json in json in json": lambda text: json.dumps({"k": json.dumps({"k": json.dumps(text)})}).encode(),
    "json in json in json, not ascii": lambda text: _dumps([_dumps([_dumps([text])])]).encode(),
    "json in json in json, the outer ascii": lambda text: json.dumps(_dumps(_dumps(text))).encode(),
    "repr": lambda text: repr(["'", text]).encode(),
    "repr of json": lambda text: repr(["'", json.dumps({"k": text})]).encode(),
    "repr in json": lambda text: json.dumps({"k": repr(["'", text])}).encode(),
    "utf-16-le": lambda text: text.encode("utf-16-le"),
    "utf-16-be": lambda text: text.encode("utf-16-be"),
    "base64": lambda text: base64.b64encode(text.encode()),
    "base64, 1 before": lambda text: base64.b64encode(b"\xff" + text.encode() + b"\xff\xff"),
    "base64, 2 before": lambda text: base64.b64encode(b"\x00\xff" + text.encode() + b"\xff"),
    "base64, url-safe": lambda text: base64.urlsafe_b64encode(text.encode()),
    "hex": lambda text: text.encode().hex().encode(),
}
encoded = pytest.mark.parametrize("encode", ENCODERS.values(), ids=ENCODERS.keys())


def pieces(text: str, length: int) -> list[str]:
    return [text[start : start + length] for start in range(len(text) - length + 1)]


def assert_each_is_found(data: list[bytes], text: str) -> None:
    findings = scan_for_roles(data, [canary(60, 9), text]).findings
    expected = {(f"bytes {number}", 1) for number in range(len(data))}
    assert {(finding.place, finding.canary) for finding in findings} == expected


@encoded
@pytest.mark.requirement("R7")
def test_any_40_characters_that_need_escapes_are_found(encode: Callable[[str], bytes]) -> None:
    assert_each_is_found([encode(piece) for piece in pieces(AWKWARD, ECHO_RUN)], AWKWARD)


def test_a_run_of_the_longest_characters_is_found_across_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "\U0001f600" * ECHO_RUN
    written = json.dumps(json.dumps(json.dumps(text)))
    monkeypatch.setattr(scan_module, "_CHUNK", 1000)
    for before in range(0, 1000, 37):
        (tmp_path / "file").write_text("x" * before + written, encoding="utf-8")
        assert scan_for_roles(tmp_path, text).findings, before


@encoded
@settings(max_examples=settings().max_examples // 5)  # each is with all pieces
@given(before=st.binary(max_size=50), after=st.binary(max_size=50))
@pytest.mark.requirement("R7")
def test_any_40_characters_in_a_row_are_found(encode: Callable[[str], bytes], before: bytes, after: bytes) -> None:
    assert_each_is_found([before + encode(piece) + after for piece in pieces(MIDDLE, ECHO_RUN)], MIDDLE)


@encoded
def test_39_characters_of_a_long_canary_are_not_reported(encode: Callable[[str], bytes]) -> None:
    shorter = pieces(MIDDLE, ECHO_RUN - 1)
    assert scan_for_roles([encode(text) for piece in shorter for text in (piece, f"~{piece}~")], MIDDLE).findings == ()


@given(data=st.text("ab", max_size=200), text=st.text("ab", min_size=41, max_size=90))
def test_it_agrees_with_a_plain_search_on_texts_that_repeat(data: str, text: str) -> None:
    runs = {text[at : at + ECHO_RUN] for at in range(len(text) - ECHO_RUN + 1)}
    expected = any(run in data for run in runs)
    assert bool(scan_for_roles(data, text).findings) is expected


@encoded
def test_a_canary_below_40_characters_is_searched_as_a_whole(encode: Callable[[str], bytes]) -> None:
    for length in range(4, ECHO_RUN):
        text = canary(length, 5)
        assert scan_for_roles(b"{" + encode(text), text).findings
        assert not scan_for_roles(b"{" + encode(text[1:]), text).findings


def test_white_space_and_case_are_compared_as_they_are() -> None:
    assert not scan_for_roles([LONG.upper(), LONG.replace(" ", "  ")], LONG).findings


@pytest.mark.parametrize("bad", [[], [LONG, "abc"], [3]])
def test_a_canary_that_cannot_be_searched_for_is_refused_and_not_shown(bad: list[str]) -> None:
    with pytest.raises(InvalidArgument, match=r"canary|canaries") as caught:
        scan_for_roles(b"", bad)
    assert "abc" not in str(caught.value)
