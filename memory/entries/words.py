"""How texts are cut into words for search. Both databases get the same words, so both rank alike (M3)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ...core.normal import normal_form

# Scripts that put no spaces between words: their runs become overlapping pairs of characters.
_UNSPACED: Final = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u1100-\u11ff\uac00-\ud7af"  # Korean
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"  # Japanese
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese characters
)
_RUN: Final = re.compile(rf"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])(?:[^\W_]|[\u0900-\u0dff]))+")
_ACCENTS: Final = re.compile("[\u0300-\u036f]")
_FIRST_UNSPACED: Final = re.compile(f"[{_UNSPACED}]")


# Words of four languages that say nothing about what is asked, as `words_of` folds them. A word of one language can be
# a name or a matter in another (`son`, `war`, `die`), so they count only in a question of their own language.
_EMPTY_WORDS: Final = {
    "en": """
        a about all also am an and any are as at be been but by can could did do does for from had has have he
        her here him his how i if in into is it its just like may me might my no not of on one or our out please
        shall she should so some something tell than that the their them then there these they this those to up
        us was we were what when where which who why will with would you your d ll m re s t ve
    """,
    "de": """
        aber alle als am an auch auf aus bei bin bist bitte da damit dann das dass dein dem den der des die doch
        du durch ein eine einem einen einer er es etwas fur hat habe haben hier ich ihm ihn ihr im in ist ja
        kann mal man mein meine mich mir mit nach nicht noch nur oder sein sich sie sind so uber um und uns vom
        von vor war was wenn wer wie wir wird wo zu zum zur
    """,
    "fr": """
        au aux avec ce ces cette dans de des du elle en est et eux il ils je la le les leur lui ma mais mes moi
        mon ne nous on ou par pas pour que qui sa se ses son sur ta te tes toi ton tu un une vos votre vous a c
        d j l m n qu s t y
    """,
    "es": """
        a al como con cual de del donde el ella ellos ese esta este esto ha hay la las lo los mas me mi muy nos
        para pero por porque que quien se si sin sobre son su sus tu tus un una uno y ya yo
    """,
}
_EMPTY: Final = {language: frozenset(words.split()) for language, words in _EMPTY_WORDS.items()}
# Those of them that are a name, an acronym or a matter elsewhere: one of these alone tells no language (`Los Angeles`).
_DOUBTFUL_WORDS: Final = """
    a al all am art as at bin c can como con d de del dem den des die do du el ella en es est este et eux ha hat
    he il in it j l la las lo los m ma man mas may me mes mi might mit mon n ne on one or par pas pour qu re s
    sa se si sin so son sur t ta te tes ton tu um un uno up us ve von vor war was will y ya yo
"""
_DOUBTFUL: Final = frozenset(_DOUBTFUL_WORDS.split())
_TELLING: Final = 2  # how much another word counts, and how much is needed to tell a language
_CASED: Final = re.compile(
    r"(?P<first>(?:^|[.!?:;\n\"'(\u00a1\u00bf\u201c\u201e\u00ab])[^\w\n]*)?(?P<word>[^\W\d_]{2,})"
)


def question_words(text: str) -> list[str]:
    """The words of a question that entries are looked up by, each once: those that say something.

    In a question of a known language, which is the one that most of its empty words are of, these are left out.
    Acronyms (`US`, `IT`) and names within a sentence (`May`) are kept.

    Args:
        text: The question. If all of its words say nothing, there are none.
    """
    words = list(dict.fromkeys(words_of(text)))
    signs = {
        language: sum(1 if word in _DOUBTFUL else _TELLING for word in empty.intersection(words))
        for language, empty in _EMPTY.items()
    }
    most = max(signs.values())
    if most < _TELLING:
        return words
    languages = [language for language, count in signs.items() if count == most]
    left_out = frozenset[str]().union(*(_EMPTY[language] for language in languages)) - _names_in(text, languages)
    return [word for word in words if word not in left_out]


def _names_in(text: str, languages: Sequence[str]) -> set[str]:
    """The words that capitals show to be names, folded. German has capitals for other words too."""
    normal = normal_form("NFKC", text)
    if normal.upper() == normal:
        return set()
    found = [(match["word"], match["first"] is None) for match in _CASED.finditer(normal)]
    names = [word for word, within in found if word.isupper() or (within and word.istitle() and "de" not in languages)]
    return set(words_of(" ".join(names)))


def words_of(text: str) -> list[str]:
    """Cut a text into the words that search compares, in their order, with repetitions.

    A word is a run of letters and digits without case and accents. Runs of scripts without spaces, such as Chinese,
    become all pairs of neighbours; a run of one character is a word.

    Args:
        text: Any text.
    """
    folded = normal_form("NFKC", text)[: 2 * len(text) + 20].casefold()  # some letters become 18
    # Only accents of European scripts are left out: in others such marks are vowels.
    folded = normal_form("NFC", _ACCENTS.sub("", normal_form("NFD", folded)))
    found: list[str] = []
    for run in _RUN.findall(folded):
        if len(run) > 1 and _FIRST_UNSPACED.match(run):
            found.extend(run[place : place + 2] for place in range(len(run) - 1))
        else:
            found.append(run)
    return found
