"""How texts are cut into words for search. Both databases get the same words, so both rank alike (M3)."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

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


# Words of English, German, French and Spanish that say nothing about what is asked, as `words_of` folds them.
_EMPTY_WORDS: Final = """
    a about all also am an and any are as at be been but by can could did do does for from had has have he her here
    him his how i if in into is it its just like may me might my no not of on one or our out please shall she should
    so some something tell than that the their them then there these they this those to up us was we were what when
    where which who why will with would you your d ll m re s t ve aber alle als am an auch auf aus bei bin bist
    bitte da damit dann das dass dein dem den der des die doch du durch ein eine einem einen einer er es etwas fur
    hat habe haben hier ich ihm ihn ihr im in ist ja kann mal man mein meine mich mir mit nach nicht noch nur oder
    sein sich sie sind so uber um und uns vom von vor war was wenn wer wie wir wird wo zu zum zur au aux avec ce ces
    cette dans de des du elle en est et eux il ils je la le les leur lui ma mais mes moi mon ne nous on ou par pas
    pour que qui sa se ses son sur ta te tes toi ton tu un une vos votre vous al como con cual del donde el ella
    ellos ese esta este esto ha hay la las lo los mas me mi muy nos para pero por porque quien se si sin sobre son
    su sus tu tus un una uno y ya yo
"""
_EMPTY: Final = frozenset(_EMPTY_WORDS.split())


def question_words(text: str) -> list[str]:
    """The words of a question that entries are looked up by, each once: those that say something.

    Args:
        text: The question. If all of its words say nothing, there are none.
    """
    return [word for word in dict.fromkeys(words_of(text)) if word not in _EMPTY]


def words_of(text: str) -> list[str]:
    """Cut a text into the words that search compares, in their order, with repetitions.

    A word is a run of letters and digits without case and accents. Runs of scripts without spaces, such as Chinese,
    become all pairs of neighbours; a run of one character is a word.

    Args:
        text: Any text.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    # Only accents of European scripts are left out: in others such marks are vowels.
    folded = unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", folded)))
    found: list[str] = []
    for run in _RUN.findall(folded):
        if len(run) > 1 and _FIRST_UNSPACED.match(run):
            found.extend(run[place : place + 2] for place in range(len(run) - 1))
        else:
            found.append(run)
    return found


__all__ = ["question_words", "words_of"]
