"""Finds the fixed words that a role asks answers to say: what comes after "end with:" and the like (R16).

Such a cue is a command, and its last words before the colon are a verb of saying ("say:"), what to say something with
("end each answer with:") or a name of fixed words ("use this sentence:"). Headings of rules, such as "How to answer:"
or "Response format:", and negations, such as "Never say:", are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from ..core.files import packaged_table


@cache
def _ways() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """A command, and one on the line of what is to be said; alone on its line, the second is a heading."""
    cues = {name: "|".join(each) for name, each in packaged_table(__package__, "cues.toml")["asked"].items()}
    say, use, by, this, words = (f"(?:{cues[name]})" for name in ("say", "use", "by", "this", "words"))
    answers = f"(?:{cues['answer']}|{cues['answer_or_noun']})"
    then = rf"(?:[\s*_]+(?:{this}|(?:exact|final|closing|fixed|same|last)?\s*{words}|{cues['further']}))*[\s*_]*"
    before = rf"\W*(?:(?:you|du|ihr|tu|vous|sie|usted)\s+)?(?:(?!\b(?:{cues['opens']})\b).)*?\b"
    said = rf"{say}{then}|(?:{say}|{answers}|{cues['with']})\b.*\b{by}{then}"
    fixed = rf"(?:{say}|{use})\b.*\b{this}\s+(?:\w+\s+)?{words}{then}|{answers}\s+(?:exactly|genau){then}"
    asks = rf"(?i)(?!.*\b(?:{cues['not']})\b)"
    return (
        re.compile(rf"{asks}{before}(?:{said}|{fixed})"),
        re.compile(rf"{asks}(?:[,，]{before}{answers}|\W*(?:{cues['answer']}))\s*"),
    )


_OF_RULES_ZH: Final = "规则|要求|原则|规定|规范|准则"
_ZH_NOT: Final = (
    rf"[不勿莫禁忌怎哪按照据遵依]|避免|如何|何时|什么|这样|这么|(?<![告特分区性级个类识辨])别|{_OF_RULES_ZH}"
)
_ZH_AFTER: Final = r"(?:^\W*|[后时就则便尾末行头首请要须应只都先再并接一定处上下])"  # else it is a part of another word
_ZH_COMMAND: Final = re.compile(
    rf"(?!.*(?:{_ZH_NOT})).*(?:{_ZH_AFTER}(?:说|写|写上|加上|附上|注明)(?:一句|这句|以下|下面)?(?:的?话|句子|文字|声明)?"
    r"|(?:这|以下|下面)(?:一|的)?(?:句话?|段话|句子|文字|语句|声明|落款)\w{0,2})\W*"
)
_ZH_ANSWERING: Final = re.compile(rf"(?!.*(?:{_ZH_NOT}))(?:[,，]|.*[就则便只一定须]).*(?:回答|回复|答复|输出)\W*")
_OF_RULES: Final = re.compile(  # a sentence, or "never, ever, say:"
    r"(?i)\b(?:(?:rules|guidelines|requirements|instructions|regeln|vorgaben|règles|consignes|reglas)\b"
    r"|(?:never|not|niemals|nie|nicht|jamais|nunca)\s*,)"
    rf"|{_OF_RULES_ZH}"
)
_COLON: Final = re.compile(r"[:：](?:\*\*)?[ \t\r]*(?P<heading>\n(?![-*•\d\s]))?(?P<said>[^\n]{1,400})")
_ENDS: Final = ".!?。！？\n"  # of sentences
_BOUNDS: Final = f"{_ENDS},，;:；：、"
_END: Final = re.compile(r"[.!?](?=\s)|[。！？]")
_LONG_LINE: Final = 160  # in Chinese a third of it
_LONGEST: Final = 90  # characters of a cue
_QUOTES: Final = tuple('"“„«»「『‘')


def asked(role: str) -> Iterator[tuple[int, int]]:
    """Begin and end of what comes after each cue, on its line or the next one, but not as a list.

    A quotation after a cue is left out: it is what is asked for, and not the rest of its line. In a paragraph, only one
    sentence is asked for, and on a line no more than comes before a further sentence with a colon.
    """
    for colon in re.finditer("[:：]", role):
        found = _COLON.match(role, colon.start())
        if found is None or found["said"].startswith(_QUOTES):
            continue
        before = role[max(0, colon.start() - 3 * _LONGEST) : colon.start()]
        sentence = _last(_ENDS, before)
        cue = " ".join(_last(_BOUNDS, sentence).split())
        (command, answering), headed = _ways(), found["heading"] is not None
        ways = (command, _ZH_COMMAND) if headed else (command, _ZH_COMMAND, answering, _ZH_ANSWERING)
        if len(cue) <= _LONGEST and not _OF_RULES.search(sentence) and any(way.fullmatch(cue) for way in ways):
            begin = found.start("said")
            on_its_line = headed or not re.search(r"[^\W\d]", _last("\n", before[: -len(sentence) or None]))
            yield begin, begin + _length(found["said"], whole=on_its_line)


def _length(said: str, *, whole: bool) -> int:
    """How much of a line is asked for: of a long one, the first sentence, or so much."""
    ends = [found.end() for found in _END.finditer(said)]
    long = _LONG_LINE if said < "\u3000" else _LONG_LINE // 3
    further = re.search("[:：]", said)
    if not whole or len(said) > long:
        return min(ends[0], 2 * long) if ends else min(len(said), long)
    return max((end for end in ends if further and end < further.start()), default=len(said))


def _last(bounds: str, text: str) -> str:
    """The text from the last of some signs on; a comma stays, the others do not."""
    at = max(text.rfind(each) for each in bounds)
    return text if at < 0 else text[at if text[at] in ",，" else at + 1 :]
