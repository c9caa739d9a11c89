"""The written pages, their parts, and the tables in them that follow from the code."""

import asyncio
import re
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from operator import eq
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from support.house import ROOT
from support.recorded import recorded_rows
from worldagent import Role, Settings, Storage, WorldAgent
from worldagent.core import errors, events
from worldagent.core.generation import SERVICE_TOOLS
from worldagent.harness import Worker
from worldagent.signatures import REPLY_DEMOS, Predictor, converse_signature
from worldagent.signatures.adapter import PlainAdapter
from worldagent.signatures.engines.connect import _caching as caching_of
from worldagent.signatures.engines.http import find_route
from worldagent.signatures.engines.providers import known_provider, providers
from worldagent.signatures.engines.services import Protocol, service_tools
from worldagent.testing import ScriptedLM

ROLES = (
    "Judge every claim as a severe critic would, and name the page that each one rests on.",
    "Explain every claim to a curious child of eight, and leave out whatever is gruesome.",
)
EARLIER = "Tell me how this part of the town came to be what it is today."
ANSWER = "The river Ashe divides the two halves of the old town, and the bridge is the only crossing."
QUESTION = "Which of the two halves of the town is the older one?"
_PARTS = "\n"


def shared_rows() -> Iterator[str]:
    """Give the rows of the table of bytes that prompts have in common, in `docs/guides/roles.md`."""
    for workers in (False, True):
        for earlier in (0, 1, 10):
            form = "chat, with a worker" if workers else "chat"
            yield _shared_row(form, earlier, asyncio.run(_chat_prompts(workers, earlier)))
    for earlier in (0, 1, 10):
        yield _shared_row("embedded", earlier, [_embedded_prompt(role, earlier) for role in (None, *ROLES)])


def _shared_row(form: str, earlier: int, prompts: Sequence[str]) -> str:
    """The sizes without a role and with one, and what two roles share from the beginning, and one and none."""
    without, one, other = (prompt.encode() for prompt in prompts)
    shared = (sum(takewhile(bool, map(eq, one, each))) for each in (other, without))
    cells = (f"{same:,} ({same * 100 // len(one)} %)" for same in shared)
    return f"| {form} | {earlier} | {len(without):,} | {len(one):,} | {' | '.join(cells)} |"


async def _chat_prompts(workers: bool, earlier: int) -> list[str]:
    fields: Mapping[str, Any] = {"reply": ANSWER, "calls": []} if workers else {"reply": ANSWER}
    lm = ScriptedLM(lambda call: fields)
    crew = [Worker("critic", "You judge.", "judges drafts")] if workers else []
    with tempfile.TemporaryDirectory() as home:
        async with WorldAgent("w", lm=lm, storage=Storage(home=Path(home)), workers=crew) as agent:
            prompts: list[str] = []
            for number, content in enumerate((None, *ROLES)):
                thread = agent.thread(f"t{number}")
                for _ in range(earlier):
                    await thread.converse(EARLIER)
                await thread.converse(QUESTION, role=Role("r", content) if content else None)
                last = lm.calls[-1]
                prompts.append(_PARTS.join((last.system, *(text for _, text in last.messages))))
            return prompts


def _embedded_prompt(role: str | None, earlier: int) -> str:
    predictor = Predictor(converse_signature(None, plain=True), demos=REPLY_DEMOS)
    past = [{"message": EARLIER}, {"reply": ANSWER}] * earlier
    predict = predictor.predict(roled=role is not None)
    inputs = {"history": past, "message": QUESTION, **({} if role is None else {"role": role})}
    signature: Any = predict.signature
    messages = PlainAdapter().format(signature, predict.demos, inputs)
    return _PARTS.join(message["content"] for message in messages)


DOCS = ROOT / "docs"
_FENCE = re.compile(r'^```(\w*)(?: title="([^"\n]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_BOUNDS = {"Ge": "ge", "Gt": "gt", "Le": "le"}
_WORDS = {"Ge": "at least", "Gt": "more than", "Le": "at most"}


def pages() -> list[Path]:
    """Give the README and every page below `docs/`."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, the line on which its code begins, its language, its code and its title.

    The title, as in ```` ```python title="shop.py" ````, is the name of the file that the reader is told to make.
    """

    page: Path
    line: int
    language: str
    code: str
    title: str = ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT).as_posix()}:{self.line}"


def blocks(language: str) -> list[Block]:
    """Give every block of `language` on every page."""
    return [block for page in pages() for block in _blocks(page) if block.language == language]


def files_of(page: Path) -> dict[str, str]:
    """Give the files that a page tells its reader to make: what is in each, by its name."""
    return {block.title: block.code for block in _blocks(page) if block.title}


def _blocks(page: Path) -> Iterator[Block]:
    text = text_of(page)
    for found in _FENCE.finditer(text):
        yield Block(page, text.count("\n", 0, found.start()) + 2, found[1], found[3], found[2] or "")


def links(page: Path) -> list[str]:
    """Give where a page's links lead, those to other sites left out."""
    return [to for to in _LINK.findall(_FENCE.sub("", text_of(page))) if "://" not in to]


def anchors(page: Path) -> set[str]:
    """Give the anchors of a page's headings, as forges make them."""
    heads = re.findall(r"^#+ (.+)$", _FENCE.sub("", text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def rows(page: Path, first: str) -> list[str]:
    """Give the rows of the table on `page` whose first heading is `first`."""
    lines = text_of(page).splitlines()
    return lines[_table(lines, first)]


def write_rows(page: Path, first: str, found: Sequence[str]) -> None:
    """Replace the rows of the table on `page` whose first heading is `first`."""
    lines = text_of(page).splitlines()
    lines[_table(lines, first)] = found
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _table(lines: Sequence[str], first: str) -> slice:
    """Where the rows of a table are; a page has one table with this first heading."""
    [heading] = [number for number, line in enumerate(lines) if line.startswith(f"| {first} |")]
    start = end = heading + 2  # after the line of dashes
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    return slice(start, end)


def setting_rows() -> list[str]:
    """Give the rows of the table of settings."""
    return [
        f"| `{name}` | `WORLDAGENT_{name.upper()}` | {_kind(field)} | {_default(field)} | {field.description} |"
        for name, field in Settings.model_fields.items()
    ]


def _kind(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(field.annotation))
    shown = str(field.annotation)
    plain = next(word for key, word in _KINDS if key in shown)
    given = [(type(bound).__name__, bound) for bound in field.metadata]
    limits = [f"{_WORDS[name]} {getattr(bound, _BOUNDS[name])}" for name, bound in given if name in _BOUNDS]
    return ", ".join([plain, *limits])


_KINDS = (
    ("GenerationOptions", "table"),
    ("bool", "`true`, `false`"),
    ("dict", "table"),
    ("Path", "path"),
    ("int", "integer"),
    ("float", "number"),
    ("SecretStr", "text"),
    ("str", "text"),
)


def _default(field: FieldInfo) -> str:
    assert field.default is not PydanticUndefined
    if isinstance(field.default, bool):
        return f"`{str(field.default).lower()}`"
    return "none" if field.default is None else f"`{field.default}`"


def error_rows(family: type[errors.WorldAgentError]) -> list[str]:
    """Give the rows of the table of one family of errors."""
    every = [each for _, each in sorted(vars(errors).items()) if isinstance(each, type)]
    return [
        f"| `{kind.__name__}` | `{kind.code}` | {'yes' if kind.retryable else 'no'} | {_summary(kind)} |"
        for kind in every
        if issubclass(kind, family) and kind is not family
    ]


def event_rows() -> list[str]:
    """Give the rows of the table of events."""
    common = {"v", "turn_id", "seq", "at", "type"}
    kinds: Sequence[Any] = get_args(get_args(events.TurnEvent)[0])
    found: list[str] = []
    for kind in kinds:
        own = ", ".join(f"`{name}`" for name in kind.model_fields if name not in common)
        found.append(f"| `{kind.model_fields['type'].default}` | {own} | {_summary(kind)} |")
    return found


def _summary(kind: type) -> str:
    """The first paragraph of a docstring without the numbers of requirements."""
    text = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
    return re.sub(r" \([A-Z]\d+(?:, [A-Z]\d+)*\)", "", text)


def vendor_rows() -> list[str]:
    """Give the rows of the table of model services, from what the code does for the example of each."""
    found: list[str] = []
    for each in providers():
        if each.api_base:
            continue  # below the table
        route = find_route(each.example, api_key="none", api_base=None, env={})
        hints = caching_of(route)
        kinds = [] if hints is None else ["a mark"] * hints.mark + ["a key"] * hints.key
        known = known_provider(route.provider)
        tools = "native" if known.first_party else "tried once"
        key = " or ".join(f"`{name}`" for name in each.variables) or "none"
        needs = each.needs or "-"
        schema = {"never": "-", "beside": "beside tools"}.get(known.schemas, known.schemas)
        own = service_tools(_protocol(route.provider), route.provider)
        cells = [f"`{each.example}`", key, needs, tools, schema, " and ".join(kinds) or "-"]
        cells.append(", ".join(f"`{name}`" for name in SERVICE_TOOLS if name in own) or "-")
        found.append(f"| {' | '.join(cells)} |")
    return found


def _protocol(provider: str) -> Protocol:
    if "anthropic" in provider:
        return "messages"
    return "gemini" if provider == "gemini" or provider.startswith("vertex") else "chat"


def requirement_rows(numbers: str) -> list[str]:
    """Give the rows of the requirements whose numbers match."""
    manifest = tomllib.loads(text_of(ROOT / "tests" / "house" / "requirements.toml"))
    return [
        f"| {number} | {row['about'].rstrip('.')}.{' Not built yet.' if row['state'] == 'not yet' else ''} |"
        for number, row in manifest.items()
        if re.fullmatch(numbers, number)
    ]


TABLES: Final[Mapping[tuple[str, str], Callable[[], list[str]]]] = {
    ("guides/vendors.md", "model string"): vendor_rows,
    ("guides/vendors.md", "recorded service"): recorded_rows,
    ("reference/errors.md", "for the model"): lambda: error_rows(errors.ModelFacing),
    ("reference/errors.md", "for the host"): lambda: error_rows(errors.HostError),
    ("reference/errors.md", "for you"): lambda: error_rows(errors.UsageError),
    ("reference/events.md", "type"): event_rows,
    ("reference/settings.md", "setting"): setting_rows,
    **{("reference/requirements.md", letter): partial(requirement_rows, rf"{letter}\d+") for letter in "RTHPMACD"},
    ("reference/requirements.md", "criterion"): lambda: requirement_rows(r"C\d+\.\d+"),
}
"""Tables that follow from the code: what makes the rows, by page and first heading. `golden.py` writes them."""
