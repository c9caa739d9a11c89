"""Finds the fixed words that a role asks answers to say: what comes after "end with:" and the like (R16).

Such a cue is a command, and its last words before the colon are a verb of saying ("say:"), what to say something with
("end each answer with:") or a name of fixed words ("use this sentence:"). Headings of rules, such as "How to answer:"
or "Response format:", and negations, such as "Never say:", are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_SAY: Final = (
    r"say|write|add|append|tell\s+(?:them|him|her|the\s+\w+)|sag(?:e|t|st|en\s+sie)?(?:\s+(?:dem|der|den)\s+\w+)?|schreib(?:e|t|st|en\s+sie)?"
    r"|ergänz(?:e|t|en\s+sie)?|füg(?:e|t|en\s+sie)?(?=\s.*\s(?:an|hinzu|ein)\b)|dis|dites|écri(?:s|vez)|ajoute[sz]?"
    r"|di|diga|dile|dígale|escrib[ae]|añad[ae]|agreg(?:a|ue)"
)
_ANSWER: Final = r"antworte(?:st|t|n\s+sie)?|répond(?:s|ez)|respond(?:e|a|s)?|contest[ae]"
_ANSWER_OR_NOUN: Final = rf"{_ANSWER}|reply|answer"
_WITH: Final = (
    r"ends?|clos(?:e|es|ing)|finish(?:es)?|conclud(?:e|es|ing)|begins?|starts?|opens?|greets?|signs?|part|ending"
    r"|beende\w*|ende\w{0,3}|schlie(?:ß|ss)\w*|beginn\w*|starte\w*|eröffne\w*|begrü(?:ß|ss)\w*|grü(?:ß|ss)\w*"
    r"|verabschiede\w*|unterschreib\w*|termin(?:e[rsz]?|a[rs]?|en?)|fini(?:s|t|r|ssez)|conclu(?:s|t|re|ez|ye)"
    r"|commence[rsz]?|salu(?:e[rsz]?|da[rs]?|de)|ouvr\w+|signe[rz]?|acab[ae]\w?|cierr[ae]s?|cerrar|finali[zc]\w+|empiez\w+"
    r"|comien[zc]\w+|despíde\w+|despída\w+|firm[ae]\w?"
)
_BY: Final = r"with|by\s+(?:saying|writing|adding)|mit|par|avec|con|por"
_USE: Final = (
    r"use|include|insert|put|repeat|contains?|verwende\w*|benutze\w*|nutze\w*|setze\w*|utilise[sz]?|emploie\w*"
    r"|inclu[st]|insère\w*|us[ae]s?|utili[zc]\w+|incluy\w+|pon|ponga"
)
_THIS: Final = (
    r"this|these|the\s+following|dies\w{1,2}|(?:(?:de[nrm]|das|die)\s+)?folgende\w?|cet(?:te)?|ces?|est[aoe]s?"
    r"|l[ae]s?\s+siguientes?"
)
_WORDS: Final = (
    r"sentence|words?|wording|phrase|line|note|notice|disclaimer|greeting|farewell|footer|signature|satz|worte?n?|wortlaut"
    r"|zeile|hinweis|gruß|grußformel|mots?|ligne|mention|formule|frase|palabras?|línea|nota|aviso|fórmula"
)
_FURTHER: Final = (
    rf"{_THIS}|(?:exact|final|closing|fixed|same|last)?\s*(?:{_WORDS})|the|exactly|only|just|simply|always|verbatim|literally"
    r"|to\s+(?:them|him|her|the\s+\w+)|(?:at|on|in)\s+the\s+(?:\w+\s+)?(?:end|bottom|top|start|beginning)|below|underneath"
    r"|of\s+(?:each|every|your|the)\s+\w+|du|ihr|sie|dich|euch|immer|nur|genau|stets|wörtlich|bitte|an|hinzu|ein|d[aeir][srmne]"
    r"|ihm|ihnen|(?:am|zum)\s+(?:ende|schluss|anfang)|jeder\s+\w+|darunter|exactement|toujours|seulement|l[aeo]s?|suivante?s?"
    r"|à\s+la\s+fin|en\s+bas|de\s+chaque\s+\w+|de\s+cada\s+\w+|exactamente|siempre|solo|sólo|al\s+(?:final|principio)"
)
_NOT: Final = (
    r"not?|never|nor|neither|none|nothing|nobody|without|cannot|dont|\w+n['’]t|avoid|instead|forbidden|nicht|nichts|nie"
    r"|niemals|kein\w*|ohne|vermeide\w*|statt|ne|n['’]\w+|pas|jamais|sans|aucun\w*|rien|évite\w*|nunca|jamás|sin|ningun\w*"
    r"|nada|evita\w*"
)
_OPENS: Final = (  # clauses that are no commands
    r"how|what\w*|when\w*|while|if|whether|why|may|might|can|could|whom?|whose|which|where|that|to|they|we|she|he|wie|was|wann|wenn|falls|wer"
    r"|welche\w*|dass|ob|weil|comment|quand|que|qui|quoi|si|lorsque|nous|ils?|cómo|cuándo|cuando|qué|quien\w*"
    r"|you|du|ihr|tu|vous|usted"
)
_THEN: Final = rf"(?:[\s*_]+(?:{_FURTHER}))*[\s*_]*"
_BEFORE: Final = rf"\W*(?:(?:you|du|ihr|tu|vous|sie|usted)\s+)?(?:(?!\b(?:{_OPENS})\b).)*?\b"
_COMMAND: Final = re.compile(
    rf"(?i)(?!.*\b(?:{_NOT})\b){_BEFORE}(?:(?:{_SAY}){_THEN}|(?:{_SAY}|{_ANSWER_OR_NOUN}|{_WITH})\b.*\b(?:{_BY}){_THEN}"
    rf"|(?:{_SAY}|{_USE})\b.*\b(?:{_THIS})\s+(?:\w+\s+)?(?:{_WORDS}){_THEN}|(?:{_ANSWER_OR_NOUN})\s+(?:exactly|genau){_THEN})"
)
_ANSWERING: Final = re.compile(rf"(?i)(?!.*\b(?:{_NOT})\b)(?:[,，]{_BEFORE}(?:{_ANSWER_OR_NOUN})|\W*(?:{_ANSWER}))\s*")
"""A command on the line of what is to be said; alone on its line, it is a heading."""

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
        ways = (_COMMAND, _ZH_COMMAND) if found["heading"] else (_COMMAND, _ZH_COMMAND, _ANSWERING, _ZH_ANSWERING)
        if len(cue) <= _LONGEST and not _OF_RULES.search(sentence) and any(way.fullmatch(cue) for way in ways):
            begin = found.start("said")
            on_its_line = found["heading"] is not None or not re.search(
                r"[^\W\d]", _last("\n", before[: -len(sentence) or None])
            )
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
