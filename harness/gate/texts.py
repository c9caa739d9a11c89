"""Conditions on texts that programs parse: URLs, mail addresses and commands.

Parsers disagree about unusual texts. An approving rule therefore matches only texts that every parser reads alike, and
a rule that asks or refuses matches if any parser could read the text that way.
"""

from __future__ import annotations

import re
import shlex
from email.errors import MessageError
from email.headerregistry import Address
from fnmatch import fnmatchcase
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from pydantic_core import Url

from ...core.normal import normal_form

_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_HOST_PATTERN: Final = re.compile(rf"(?:([a-z][a-z0-9+.-]*)://)?((?:\*\.)?{_HOST.pattern})(?::([0-9]{{1,5}}))?")
_PLAIN: Final = re.compile(r"[\x21-\x7e]+")
_LOCAL: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._+='~-]*[A-Za-z0-9_+='~-])?")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_WILD: Final = re.compile(r"[*?\[]")
_ONE: Final = re.compile(r"[\w.:/?&=#+~-]+")
"""A recipient without an `@`, such as the name of a team or a URL."""
_MAX_HOST: Final = 253  # characters of a host (RFC 1035)
_MAX_EMAIL: Final = 254  # characters of an address (RFC 5321)
_MAX_TEXT: Final = 8192  # characters of a URL or a command that is approved
_MAX_DOUBTED: Final = 16_384  # characters of a text that is searched; a longer one counts as a possible match
_WEB: Final = ("http", "https")
_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}
_SHELL: Final = frozenset(";&|<>$`()\\{}[]*?~!#^%")
"""Characters that a shell may expand, or that end a command."""
_HIDES: Final = frozenset("$`{%^!")
"""Characters that a shell can replace by any other text."""


class HostPattern(NamedTuple):
    """A host in a rule. If it begins with `*.`, it means the subdomains."""

    scheme: str | None
    host: str
    port: int | None

    def covers(self, host: str) -> bool:
        """Whether the pattern matches this host."""
        if self.host.startswith("*."):
            return host.endswith(self.host[1:]) and host != self.host[1:]
        return host == self.host


def host_pattern(text: str) -> HostPattern:
    """Read the host of a rule.

    Raises:
        ValueError: The text is not a host.
    """
    found = _HOST_PATTERN.fullmatch(text.lower())
    if found is None or found[2].startswith("*.") is not ("*" in text) or ("*" in text and "." not in found[2][2:]):
        raise ValueError(
            "name a host such as 'api.example.com', or '*.example.com' for its subdomains, with a scheme or a port if "
            "only that one is meant; write letters other than ASCII in their 'xn--' form"
        )
    return HostPattern(found[1], found[2], None if found[3] is None else int(found[3]))


def is_at_host(text: str, pattern: str, *, unsure: bool) -> bool:
    """Whether a text is a URL at the host; with `unsure`, whether the host may be in it."""
    wanted = host_pattern(pattern)
    if unsure:
        return len(text) > _MAX_DOUBTED or any(wanted.covers(host) for host in _hosts(text))
    if len(text) > _MAX_TEXT or not _PLAIN.fullmatch(text) or "\\" in text:
        return False
    try:
        by_python, by_whatwg = urlsplit(text), Url(text)
        port = by_python.port
    except ValueError:
        return False
    scheme, host = by_python.scheme, by_python.netloc.lower().partition(":")[0]
    default = _PORTS.get(scheme)
    if not text.lower().startswith(f"{scheme}://{host}") or not _HOST.fullmatch(host):
        return False
    if by_whatwg.scheme != scheme or by_whatwg.host != host or (port or default) != by_whatwg.port:
        return False
    allowed = scheme in _WEB if wanted.scheme is None else scheme == wanted.scheme
    return allowed and (port or default) == (wanted.port or default) and wanted.covers(host)


def _hosts(text: str) -> set[str]:
    """Return everything in a text that any parser may read as a host."""
    plain = normal_form("NFKC", unquote(_CONTROL.sub("", text))).lower().replace("\u3002", ".")
    found: set[str] = set()
    for each in {*re.split(r"[^\w.-]+", plain), *re.split(r"[^\w.-]+", _CONTROL.sub(" ", text).lower())}:
        piece = each.strip(".")
        found.add(piece)
        # Parsing changes only numbers, such as IPv4 addresses, and letters other than ASCII.
        if piece and len(piece) <= _MAX_HOST and (piece[0].isdigit() or not piece.isascii()):
            try:
                found.add((Url(f"https://{piece}/").host or "").strip("."))
            except ValueError:
                continue
    return found - {""}


def email_pattern(text: str) -> tuple[str, str]:
    """Read the mail addresses of a rule, as local part and domain.

    Raises:
        ValueError: The text is not an address.
    """
    local, _, domain = text.rpartition("@")
    if not local or "@" in local or not _HOST.fullmatch(domain.lower()):
        raise ValueError(
            "name an address such as 'ana@corp.com' or '*@corp.com'; a wildcard is allowed only before the '@'"
        )
    return local, domain.lower()


def is_email(text: str, pattern: str, *, unsure: bool) -> bool:
    """Whether a text is exactly one address that the pattern matches; with `unsure`, whether it may be one."""
    local, domain = email_pattern(pattern)
    parsed = _address(text)
    if parsed is not None:
        found = (parsed[0].lower(), local.lower()) if unsure else (parsed[0], local)
        return parsed[1].lower() == domain and fnmatchcase(*found)
    if not unsure:
        return False
    if len(text) > _MAX_DOUBTED:
        return True
    return "@" in normal_form("NFKC", unquote(text)) and domain in _hosts(text)


def is_recipient(text: str, glob: str) -> bool:
    """Whether a text is one recipient, such as an address or the name of a team, that a glob matches in any case.

    A wildcard matches no text that could be several recipients: what separates, quotes or hides one, and an address
    with a name or a comment. Without a wildcard the two must be equal.
    """
    if _WILD.search(glob) and not (_ONE.fullmatch(text) if "@" not in text else _address(text)):
        return False
    text, glob = text.lower(), glob.lower()  # `casefold` would make one of the domains straße.de and strasse.de
    return fnmatchcase(text, glob) or text == glob


def _address(text: str) -> tuple[str, str] | None:
    """Parse a text that is one plain address; None if it has a name, a list, a comment, quotes or anything else."""
    if len(text) > _MAX_EMAIL or not _PLAIN.fullmatch(text):
        return None
    try:
        address = Address(addr_spec=text)
    except (ValueError, IndexError, MessageError):
        return None
    local, domain = address.username, address.domain
    is_plain = f"{local}@{domain}" == text and _LOCAL.fullmatch(local) and _HOST.fullmatch(domain.lower())
    return (local, domain) if is_plain else None


def command_pattern(text: str) -> tuple[list[str], bool]:
    """Read the command of a rule: its words, and whether more arguments can follow.

    Raises:
        ValueError: The text is not one command.
    """
    words = text.split()
    more = len(words) > 1 and words[-1] == "*"
    fixed = words[:-1] if more else words
    if not fixed or _words(" ".join(fixed)) != fixed:
        raise ValueError("name one program and its first arguments, such as 'git status' or 'git log *'")
    return fixed, more


def is_command(text: str, pattern: str, *, unsure: bool) -> bool:
    """Whether a text is one command that the pattern matches; with `unsure`, whether it may run such a command."""
    fixed, more = command_pattern(pattern)
    if unsure:
        return _may_run(text, fixed)
    words = _words(text)
    if words is None or words[: len(fixed)] != fixed:
        return False
    rest = words[len(fixed) :]
    return not rest or (more and not any(each.startswith("-") for each in rest))


def is_narrowed_command(text: str, pattern: str) -> bool:
    """Whether a text is one command that the pattern matches. Unlike `is_command`, a last `*` also allows options.

    Options can change what a program does, so this must never approve a call.
    """
    fixed, more = command_pattern(pattern)
    words = _words(text)
    return words is not None and (words[: len(fixed)] == fixed if more else words == fixed)


def _words(text: str) -> list[str] | None:
    """Return the words of one command that a shell would not change; None if it would expand or run anything else."""
    if len(text) > _MAX_TEXT or _SHELL & set(text) or not _PLAIN.fullmatch(text.replace(" ", "x")):
        return None
    try:
        words = shlex.split(text, posix=True)
    except ValueError:
        return None
    if not words or not words[0] or "=" in words[0] or any(word.startswith("=") for word in words):
        return None
    return words


def _may_run(text: str, fixed: list[str]) -> bool:
    """Whether a text may contain these words, in their order, as a command."""
    if len(text) > _MAX_DOUBTED or _HIDES & set(text):
        return True
    plain = re.sub(r"[\"'\\]", "", normal_form("NFKC", text)).lower()
    wanted = [each.lower() for each in fixed]
    return any(_has_in_order(each, wanted) for each in {plain, _CONTROL.sub("", plain)})


def _has_in_order(plain: str, wanted: list[str]) -> bool:
    left = [*wanted]
    for word in re.split(r"[\s;&|<>()#\x00-\x1f]+", plain):
        if left and any(_may_be(each, left[0]) for each in (word, word.rpartition("/")[2])):
            left.pop(0)
    return not left


def _may_be(word: str, wanted: str) -> bool:
    """Whether a word of a command is the wanted one, or a wildcard that a shell may expand to it."""
    return word == wanted or (bool(set("*?[") & set(word)) and (len(word) > _MAX_HOST or fnmatchcase(wanted, word)))
