"""The name in an origin is told apart from its field, also where the name has dots (H11)."""

import pytest

from worldagent.harness.gate.labels import Label, as_said, can_be_from, is_from, origin_of

pytestmark = pytest.mark.requirement("H11")

FITS: list[tuple[str, str, str, bool]] = [
    # name, field, the glob of a rule; does it fit?
    ("search", "sender", "search.sender", True),
    ("search", "sender", "search.*", True),
    ("search", "user.id", "search.user.id", True),
    ("search", "user.id", "search.user.*", True),
    ("search", "*", "search.user.*", False),
    ("search.user", "*", "search.*", False),
    ("message:ada", "*", "message:ada.*", True),
    ("message:ada.b", "*", "message:ada.b.*", True),
    ("message:ada.b", "*", "message:ada.*", False),
    ("message:ada.b", "*", "message:*", True),
    ("message:ada", "*", "message:ada.b.*", False),
    ("message:ada%2Eb", "*", "message:ada.b.*", False),
    ("account:bob@corp.com", "*", "account:bob@corp.com.*", True),
    ("account:bob@corp.com.evil.io", "*", "account:bob@corp.com.*", False),
    ("account:bob@corp.com.evil.io", "*", "account:*.*", True),
]


@pytest.mark.parametrize(("name", "field", "glob", "fits"), FITS)
def test_glob_names_the_whole_name(name: str, field: str, glob: str, fits: bool) -> None:
    origin = origin_of(name, field)
    assert is_from([origin], [glob]) is fits
    assert can_be_from([origin], [glob]) or not fits  # to ask or refuse, a possible match is enough


@pytest.mark.parametrize(("name", "field", "glob", "fits"), FITS)
def test_mark_of_a_value_is_the_whole_name(name: str, field: str, glob: str, fits: bool) -> None:
    label = Label((origin_of(name, field),), chosen=(origin_of("page"),))
    assert label.marks == {name, "page"}
    assert as_said(origin_of(name, field)) == f"{name}.{field}"
