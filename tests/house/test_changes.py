"""What `make changelog` gathers: one file for each change, in the form that CONTRIBUTING.md gives."""

import re

from support.house import ROOT, pyproject

_LONGEST = 600


def test_each_change_is_one_short_paragraph_of_a_known_kind() -> None:
    kinds = "|".join(pyproject()["tool"]["towncrier"]["fragment"])
    for file in (ROOT / "changes").glob("*"):
        assert re.fullmatch(rf"[a-z0-9]+(-[a-z0-9]+)*\.({kinds})\.md", file.name), f"{file.name}: NAME.KIND.md"
        text = file.read_text(encoding="utf-8")
        assert re.fullmatch(r"[^\s#*-][^\n]*(\n[^\n]+)*[.)]\n", text), f"{file.name}: one paragraph, without a bullet"
        assert len(text) <= _LONGEST, f"{file.name}: one or two sentences"
        for link in re.findall(r"\]\(([^)#:]+)[^):]*\)", text):
            assert (ROOT / link).is_file(), f"{file.name}: {link!r} is not a path from the top of the checkout"
