"""A program that turns HTML into Markdown: pages of strangers are parsed only in its process.

`page` starts it by its path, so it imports nothing of the package, and ends it if it takes too long. For each page it
reads a line of JSON and the page's bytes, and writes a line of JSON and the text's bytes. The other modules use
`decoded` too.
"""

from __future__ import annotations

import codecs
import html
import json
import re
import sys
from typing import Any, Final

_MEMORY: Final = 1 << 30  # bytes
_SECONDS: Final = 120  # of CPU time, for all pages
_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_META: Final = re.compile(
    rb"""<(?:meta|\?xml)\b[^>]{0,300}?(?:charset|encoding)\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE
)
# Codecs for text only: some others are slow on purpose, or are not encodings of text.
_TEXT: Final = re.compile(
    r"ascii|utf-(8|16|32)(-[lb]e)?|iso8859-\d+|cp\d+|koi8-[rtu]|mac-[a-z]+|gb(k|2312|18030)|big5(hkscs)?|"
    r"euc_\w+|shift_jis\w*|iso2022_\w+|hz|johab|tis-620"
)


def decoded(body: bytes, charset: str | None, *, cut: bool = False) -> str:
    """Decode bytes: by their byte order mark, by the server's charset, by their own declaration, else by a guess.

    Args:
        body: The bytes.
        charset: The charset that the server sends.
        cut: Whether the bytes are incomplete.
    """
    for mark, name in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    found = _META.search(body[:2048])
    said = _codec(charset) or (None if found is None else _codec(found[1].decode("ascii", "ignore"), written=True))
    if said is not None:
        return body.decode(said, "replace")
    try:
        return codecs.getincrementaldecoder("utf-8")("strict").decode(body, final=not cut)
    except UnicodeDecodeError:
        return body.decode("cp1252", "replace")


def _codec(name: str | None, *, written: bool = False) -> str | None:
    """Return the codec with that name, if there is one for text.

    Args:
        name: The codec's name.
        written: Whether the text itself declares it; then it must be like ASCII.
    """
    try:
        known = codecs.lookup(name or "").name
    except (LookupError, UnicodeError, ValueError):
        return None
    if known in ("ascii", "iso8859-1"):
        return "cp1252"
    if written and known.startswith(("utf-16", "utf-32")):
        return "utf-8"
    return known if _TEXT.fullmatch(known) else None


def title_of(page: str) -> str:
    """Return the title of a page; empty if it has none."""
    begin = page[: 1 << 16]
    at = begin.lower()
    if len(at) != len(begin):  # the lower case of some letters is longer
        return ""
    opened = at.find(">", at.find("<title"))
    closed = at.find("</title", opened)
    if at.find("<title") < 0 or opened < 0 or closed < 0:
        return ""
    return " ".join(html.unescape(begin[opened + 1 : closed]).split())


def _bound() -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    for what, most in ((resource.RLIMIT_AS, _MEMORY), (resource.RLIMIT_CPU, _SECONDS), (resource.RLIMIT_CORE, 0)):
        try:
            resource.setrlimit(what, (most, most))
        except (OSError, ValueError):  # the host's limit is lower, or the system has no such limit
            continue


def main() -> None:
    """Turn pages into text until the input ends."""
    sys.path.append(sys.argv[1])
    from html_to_markdown import ConversionOptions, convert

    _bound()
    while line := sys.stdin.buffer.readline():
        asked: dict[str, Any] = json.loads(line)
        page = decoded(sys.stdin.buffer.read(asked["size"]), asked["charset"], cut=asked["cut"])
        options = ConversionOptions(
            extract_metadata=False, inline_data_media="alt_text_only", base_url=asked["url"] or None
        )
        text = (convert(page, options).content or "").strip()
        kept = text[: asked["limit"]].encode("utf-8", "replace")
        reply = {"title": title_of(page)[:300], "size": len(kept), "cut": len(text) > asked["limit"]}
        sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n" + kept)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
