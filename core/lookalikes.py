"""Texts that look alike although their characters differ, such as `root` with a Cyrillic letter."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Final

from .normal import normal_form

# Each letter and digit with what looks like it: the characters that confusables.txt of Unicode (UTS #39) gives for it,
# letters with strokes and hooks, small capitals, and letters in black circles, in black squares and of flags. What NFKD
# and the case of letters lead to is left out. `m` looks like `rn`, `w` like `vv`, and I, l, 1 and | like one another.
_ALIKE: Final[Mapping[str, str]] = {
    "2": "ƧϨᒿꙄꛯꝚ",
    "3": "ƷȜЗӠⳌꝪꞫ𑣊𖼻𝈆",
    "4": "Ꮞ𑢯",
    "5": "Ƽ𑢻",
    "6": "бᏮⳒ𑣕",
    "7": "𐓒𑣆𝈒",
    "8": "ȣ৪੪𐌚",
    "9": "৭੧୨൭ⳊꝮ𑣌𑣖",
    "a": "ɑαаᎪᗅᴀᶏ⍺ⱥꓮ𐊠𖽀🅐🅰🇦",
    "b": "ƀƃƄɓʙΒВЬᏏᏴᑲᖯᗷᵬᶀꓐꞗꞴ𐊂𐊡𐌁🅑🅱🇧",
    "c": "ƈȼɕϲсᏟᴄⲥꓚꞓꞔ𐊢𐌂𐐽𐔜𑣩𑣲𝼝🅒🅲🇨",
    "d": "đƌȡɖɗԁᎠᏧᑯᗞᗪᴅᵭᶁᶑꓒꓓꟈ🅓🅳🇩",
    "e": "ɇΕеҽᎬᴇᶒ℮⋿ⱸⴹꓰꬲꬴ𐊆𑢦𑢮🅔🅴🇪",
    "f": "ƒϜքᖴᵮᶂẝꓝꜰꞙꬵ𐊇𐊥𐔥𑣂𝈓🅕🅵🇫",
    "g": "ƍǥɠɡɢԌցᏀᏳᶃꓖꞡ🅖🅶🇬",
    "h": "ħɦʜΗНһհᎻᏂᕼⱨⲎꓧꞕ𐋏🅗🅷🇭",
    "i": "ıɨɩɪιіӏᎥᶖ⍳ꙇ𑣃𝼚🅘🅸🇮",
    "j": "ɉʝϳјᎫᒍᴊꓙ🅙🅹🇯",
    "k": "ƙΚКᏦᛕᴋᶄⱪⲔꓗꝁꝃꝅꞣ𐔘🅚🅺🇰",
    "l": "łƖƚǀȴɫɬɭʟΙІӀ\u06f1Ꮮᒪᛁᶅ∣⏽ⱡⲒⳐⵏꓡꓲꝉꞎꬷꬸꬹ𐊊𐌉𐌠𐐛𐔦𑢣𑢲𖼖𖼨𝈪𝼑𝼓🅛🅻🇱",
    "m": "ɱΜϺМᎷᗰᛖᴍᵯᶆⲘꓟꬺ𐊰𐌑𑜀𑣣🅜🅼🇲",
    "n": "ƞȵɲɳɴΝոռᵰᶇⲚꓠꞑꞥꬻ𐔓🅝🅽🇳",
    "o": "øƟοσоօ\u06f5०০੦૦ଠ୦௦౦೦ഠ൦๐໐ဝ၀ჿዐᴏᴑⱺⲟⵔ〇ꓳꝋꝍꬽ𐊒𐊫𐐬𐓪𐔖𑓐𑢵𑣈𑣗𑣠𝼛🅞🅾🇴",
    "p": "ƥρрᏢᑭᴘᵱᵽᶈ⍴ⲣꓑꝑꝓꝕ𐊕🅟🅿🇵",
    "q": "ɋʠԛգզⵕꝗꝙꞯ🅠🆀🇶",
    "r": "ɍɼɽɾʀгᎡᏒᖇᴦᵲᵳᶉⲅꓣꞧꭇꭈꭉꮁ𐒴𖼵𝈖𝼖🅡🆁🇷",
    "s": "ƽȿʂѕՏᏕᏚᵴᶊꓢꜱꞩꟊ𐊖𐑈𑣁𖼺𝼞🅢🆂🇸",
    "t": "ŧƫƭȶʈΤТᎢᴛᵵ⊤⟙ⱦⲦꓔ𐊗𐊱𐌕𑢼𖼊𝼉🅣🆃🇹",
    "u": "ʋυսሀᑌᴜᶙ∪⋃ꓴꞟꞹꭎꭒ𐓶𑣘𖽂🅤🆄🇺",
    "v": "Ʋνѵ\u06f7Ꮩᐯᴠ∨⋁ⱱⱴⴸꓦꛟꝟ𐔝𑜆𑣀𖼈𝈍🅥🆅🇻",
    "w": "ɯѡԝաᎳᏔᴡⱳꓪ𑜊𑜎𑜏𑣦𑣯🅦🆆🇼",
    "x": "×Χхᕁᕽ᙭᙮ᚷᶍ╳⤫⤬⨯ⲬⵝꓫꞳꭖꭗꭘꭙ𐊐𐊴𐌗𐌢𐔧𑣬🅧🆇🇽",
    "y": "ƴɏɣʏΥγуүყᎩᎽᶌỿⲨꓬꭚ𐊲𑢤𑣜𖽃🅨🆈🇾",
    "z": "ƶȥɀʐʑΖᏃᴢᵶᶎⱬꓜ\U000102f5𑢩𑣄𑣥🅩🆉🇿",
}
_SAME: Final = {"i": "l", "1": "l", "|": "l", "0": "o", "5": "s", "$": "s", "m": "rn", "w": "vv"}
_IGNORED: Final = (
    *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFEFF, 0xFFA0),
    *(*range(0x180B, 0x1810), *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070)),
    *(*range(0xFE00, 0xFE10), *range(0xFFF0, 0xFFF9), *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE1000)),
)
"""What is not seen: the characters with the property Default_Ignorable_Code_Point."""


@cache
def _table() -> Mapping[int, str | None]:
    """What each character is replaced by."""
    made = {ord(each): letter for letter, alike in _ALIKE.items() for each in alike}
    # A capital letter and its small one are the same letter, also where only the capital one looks like a Latin one.
    small = {each: chr(each).casefold() for each in made}
    made = {ord(each): made[code] for code, each in small.items() if len(each) == 1} | made
    found = {code: _SAME.get(letter, letter) for code, letter in made.items()}
    return {**found, **{ord(each): letter for each, letter in _SAME.items()}, **dict.fromkeys(_IGNORED)}


def _seen(text: str) -> str:
    table = _table()  # used before NFKD too, which makes another letter of some, such as the lunate sigma
    return normal_form("NFKD", text.translate(table)).casefold().translate(table)


def letters_of(text: str) -> str:
    """The letters and digits of a text as they look, without marks, case, spaces and punctuation."""
    return "".join(filter(str.isalnum, _seen(text)))


@lru_cache(maxsize=16_384)
def skeleton(text: str) -> str:
    """The words of a text as they look, with one blank between them. Texts with equal skeletons look alike.

    Accents do not count. The result is for comparing alone, and no text to show.
    """
    kept = (each for each in _seen(text) if unicodedata.combining(each) not in _ACCENTS)
    return " ".join("".join(each if each.isalnum() or _is_mark(each) else " " for each in kept).split())


_ACCENTS: Final = frozenset((1, *range(200, 256)))
"""The classes of marks on or over a letter. Marks of other classes are part of the letters of a script."""


def _is_mark(each: str) -> bool:
    return unicodedata.category(each).startswith("M")


_SCRIPTS: Final = frozenset(
    (
        *("ARABIC", "ARMENIAN", "BENGALI", "BOPOMOFO", "CYRILLIC", "DEVANAGARI", "EAST ASIAN", "ETHIOPIC", "GEORGIAN"),
        *("GREEK", "GUJARATI", "GURMUKHI", "HANGUL", "HEBREW", "KANNADA", "KHMER", "LAO", "LATIN", "MALAYALAM"),
        *("MYANMAR", "ORIYA", "SIGN", "SINHALA", "TAMIL", "TELUGU", "THAANA", "THAI", "TIBETAN"),
    )
)
"""The scripts that Unicode recommends for identifiers (UAX #31, table 5), as names of characters begin; and signs."""

_EAST_ASIAN: Final = ("CJK", "HANGUL SYLLABLE", "HIRAGANA", "IDEOGRAPHIC", "KATAKANA")
_OF_ALL: Final = frozenset(("COMBINING", "MODIFIER"))


@lru_cache(maxsize=16_384)
def odd_word(text: str) -> str:
    """The first word of a text whose letters belong to several scripts, or to one that is rarely written; else empty.

    This is what UTS #39 calls highly restrictive, for each word: only Chinese, Japanese and Korean words can have Latin
    letters. Digits of a script, and signs that look like letters, such as those of mathematics, count as its letters.
    """
    seen = normal_form("NFKC", text.translate(dict.fromkeys(_IGNORED)))
    for word in "".join(" " if unicodedata.category(each)[0] == "P" else each for each in seen).split():
        scripts = {_script(each) for each in word} - {""}
        if not (scripts <= {"LATIN", "EAST ASIAN"} or (scripts <= _SCRIPTS and len(scripts) == 1)):
            return word
    return ""


@lru_cache(maxsize=4096)
def _script(each: str) -> str:
    """The script of a letter, a mark or a digit; empty for what occurs in all of them."""
    if each.isascii():
        return "LATIN" if each.isalpha() else ""
    kind, name = unicodedata.category(each), unicodedata.name(each, "?").removeprefix("EXTENDED ")
    if kind[0] in "LMN":
        first = name.replace("-", " ").split()[0]
        return "EAST ASIAN" if name.startswith(_EAST_ASIAN) else "" if first in _OF_ALL else first
    return "SIGN" if kind == "Sm" or (kind[0] == "S" and "\xff" < each < "\u2600") else ""  # pictures begin there
