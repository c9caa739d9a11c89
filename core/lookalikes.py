"""Texts that look alike although their characters differ, such as `root` with a Cyrillic letter."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Final

from .normal import normal_form

# Each letter and digit with what looks like it: the characters that confusables.txt of Unicode (UTS #39) gives for it,
# letters with strokes and hooks, small capitals, and letters in black circles, in black squares and of flags. What NFKD
# and the case of letters lead to is left out. `m` looks like `rn`, and I, l, 1 and | look like one another.
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
_SAME: Final[Mapping[str, str]] = {"i": "l", "1": "l", "|": "l", "0": "o", "m": "rn"}
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
    table = _table()
    return normal_form("NFKD", text).translate(table).casefold().translate(table)


def letters_of(text: str) -> str:
    """The letters and digits of a text as they look, without marks, case, spaces and punctuation."""
    return "".join(filter(str.isalnum, _seen(text)))


@lru_cache(maxsize=16_384)
def skeleton(text: str) -> str:
    """The words of a text as they look, with one blank between them. Texts with equal skeletons look alike.

    Accents do not count. The result is for comparing alone, and no text to show.
    """
    kept = (each for each in _seen(text) if unicodedata.combining(each) < _ABOVE)
    return " ".join("".join(each if each.isalnum() or _is_mark(each) else " " for each in kept).split())


_ABOVE: Final = 200  # from this class on a mark is an accent; the others are part of the letters of a script


def _is_mark(each: str) -> bool:
    return unicodedata.category(each).startswith("M")


__all__ = ["letters_of", "skeleton"]
