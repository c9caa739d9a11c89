"""The picture of a chat in the README: it is there, and shows what the program prints."""

import runpy

from support.pages import DOCS

SCRIPT = DOCS / "pictures" / "make_chat.py"
PICTURE = DOCS / "pictures" / "chat.svg"
REMEDY = "the chat looks different now; run PYTHONPATH=.dev:tests .venv/bin/python -P docs/pictures/make_chat.py"


def test_the_picture_loads_nothing_from_elsewhere() -> None:
    svg = PICTURE.read_text(encoding="utf-8")
    assert "@import" not in svg
    assert "@font-face" not in svg
    assert svg.count("://") == svg.count("http://www.w3.org/2000/svg") == 1
    assert len(svg) < 60_000


async def test_the_picture_shows_the_chat_as_the_program_prints_it() -> None:
    script = runpy.run_path(str(SCRIPT))
    shown = script["text_in"](PICTURE.read_text(encoding="utf-8"))
    assert "main> /role Answer like a pirate." in shown
    assert "approval of a call: buy" in shown
    assert script["text_on"](await script["session"]()) == shown, REMEDY
