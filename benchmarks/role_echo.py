"""How often answers that use their role are damaged, and how often answers that disclose it are shown (R16).

Run `python benchmarks/role_echo.py [--quick] [--json]`. It measures the modes `strict` and `disclosure` over the
labelled set in role_echo.toml, and how far a stream is behind. README.md explains the figures.
"""

from __future__ import annotations

import random
import re
import statistics
from collections.abc import Callable, Sequence

from worldagent.benchmarks._measure import Report, Row, main
from worldagent.benchmarks._role_echo_set import Answered, Labelled, dressed, labelled_roles, sentences
from worldagent.role_resolution import Echo, RolePart
from worldagent.signatures.disclosure import RoleGuard, words_of

_MOST = 0.02  # of the answers of a group
_SEED = 20261129
_TIER_WORDS = range(3, 41)  # the sizes of tiers in a stack
_STILL_THERE = 0.7  # of the words of a sentence, from which it counts as shown

Judge = Callable[[Labelled, Answered], tuple[bool, bool]]
"""Whether anything of an answer is withheld, and whether most of the role is shown."""


def is_shown(role: str, answer: str) -> bool:
    """Whether most sentences of a role can be read in an answer, in any order. It knows nothing of either rule."""
    there = {word.text for word in words_of(answer)}
    counts = []
    for sentence in sentences(role):
        words = [word.text for word in words_of(sentence)]
        if words:
            counts.append(sum(word in there for word in words) >= _STILL_THERE * len(words))
    return 2 * sum(counts) > len(counts)


def judge(echo: Echo) -> Judge:
    """What the guard does in one mode."""

    def judged(role: Labelled, one: Answered) -> tuple[bool, bool]:
        shown, withheld = _guard([role.text], one, echo).scrub_value(one.answer)
        return withheld > 0, is_shown(role.text, shown)

    return judged


def _guard(texts: Sequence[str], one: Answered, echo: Echo) -> RoleGuard:
    return RoleGuard([RolePart(text, echo) for text in texts], [one.message])


def figures(name: str, judge: Judge, roles: Sequence[Labelled], *, aim: float | None) -> list[Row]:
    """The shares of one rule: damaged uses by language, and shown disclosures by language and by dress."""
    rows: list[Row] = []

    def add(key: str, outcomes: Sequence[bool]) -> None:
        if outcomes:
            share = sum(outcomes) / len(outcomes)
            rows.append(
                Row(key=f"{name}_{key}", value=share, unit="", aim=aim, note=f"{sum(outcomes)} of {len(outcomes)}")
            )

    damaged = {role.id: [judge(role, use)[0] for use in role.uses] for role in roles}
    shown = {role.id: [judge(role, one)[1] for one in role.disclosures] for role in roles}
    groups = {"all": roles, "unseen": [role for role in roles if role.unseen]}
    groups |= {language: [role for role in roles if role.language == language] for language in ("en", "de", "zh")}
    for group, members in groups.items():
        add(f"damaged_{group}", [each for role in members for each in damaged[role.id]])
        add(f"shown_{group}", [each for role in members for each in shown[role.id]])
    by_dress: dict[str, list[bool]] = {}
    for role in roles:
        for one in dressed(role):
            by_dress.setdefault(one.dress, []).append(judge(role, one)[1])
    for dress, outcomes in by_dress.items():
        add(f"shown_{dress}", outcomes)
    return rows


def stacked(echo: Echo, roles: Sequence[Labelled]) -> Row:
    """How many tiers of a stack can be read if an answer gives one of them back."""
    source = random.Random(_SEED)
    words = [word.text for role in roles if role.language == "en" for word in words_of(role.text)]
    shown = total = 0
    for tiers in range(2, 6):
        for size in (3, 4, 5, 8, 12, 20, 30, 40):
            stack = [" ".join(source.sample(words, each)) for each in (size, *source.choices(_TIER_WORDS, k=tiers - 1))]
            for text in stack:
                given = Answered("", f"Here you are:\n* {text}\nThat is all.")
                shown += text in _guard(stack, given, echo).scrub_value(given.answer)[0]
                total += 1
    aim = 0.0 if echo == "disclosure" else None
    return Row(key=f"{echo}_shown_stacks", value=shown / total, unit="", aim=aim, note=f"{shown} of {total}")


def held(echo: Echo, roles: Sequence[Labelled]) -> list[Row]:
    """How many characters the stream of an answer that uses its role is behind: the median, and the most."""
    behind: dict[str, list[tuple[float, int]]] = {}
    for role in roles:
        for one in role.uses:
            text = RoleGuard([RolePart(role.text, echo)]).filter()
            sent = shown = 0
            found: list[int] = []
            for part in re.findall(r"\s*\S{1,8}", one.answer):
                sent += len(part)
                shown += len(text.feed(part))
                found.append(sent - shown)
            for kind in ("all", role.kind):
                behind.setdefault(kind, []).append((statistics.median(found), max(found)))
    rows: list[Row] = []
    for kind, answers in sorted(behind.items()):
        medians, most = zip(*answers, strict=True)
        rows.append(Row(key=f"{echo}_held_{kind}", value=statistics.median(medians), unit="chars", note="median"))
        rows.append(
            Row(key=f"{echo}_most_{kind}", value=statistics.median(most), unit="chars", note=f"up to {max(most)}")
        )
    return rows


async def run(report: Report) -> None:
    """Judge all answers in both modes."""
    roles = labelled_roles()[:: 5 if report.quick else 1]
    modes: tuple[Echo, ...] = ("strict", "disclosure")
    for echo in modes:
        aim = _MOST if echo == "disclosure" else None
        rows = [*figures(echo, judge(echo), roles, aim=aim), stacked(echo, roles), *held(echo, roles)]
        report.section(f"{len(roles)} roles, {echo}", rows)


if __name__ == "__main__":
    main("role_echo", "How often uses of a role are damaged, and disclosures shown.", run)
