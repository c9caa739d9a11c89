"""How often answers that use their role are damaged, and how often answers that disclose it are shown (R16).

Run `python benchmarks/role_echo.py [--quick] [--json]`. It measures the guard of the package, and the rule of
`_disclosure` that is to take its place, over the labelled set in role_echo.toml. README.md explains both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from worldagent.benchmarks._disclosure import Disclosure, words_of
from worldagent.benchmarks._measure import Report, Row, main
from worldagent.benchmarks._role_echo_set import Answered, Labelled, dressed, labelled_roles, sentences
from worldagent.signatures.echo import EchoGuard

_MOST = 0.02  # of the answers of a group
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


def by_guard(role: Labelled, one: Answered) -> tuple[bool, bool]:
    """What the package's guard does."""
    shown, withheld = EchoGuard(role.text, others=[one.message]).scrub_value(one.answer)
    return withheld > 0, is_shown(role.text, shown)


def by_disclosure(role: Labelled, one: Answered) -> tuple[bool, bool]:
    """What the rule of `_disclosure` says. It withholds what it finds, which is then not shown."""
    disclosed = Disclosure(role.text, [one.message]).is_disclosed(one.answer)
    return disclosed, not disclosed


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


async def run(report: Report) -> None:
    """Judge all answers by both rules."""
    roles = labelled_roles()[:: 5 if report.quick else 1]
    report.section(f"{len(roles)} roles, the guard of the package", figures("guard", by_guard, roles, aim=None))
    rows = figures("disclosure", by_disclosure, roles, aim=_MOST)
    report.section("The rule that is to take its place", rows)


if __name__ == "__main__":
    main("role_echo", "How often uses of a role are damaged, and disclosures shown.", run)
