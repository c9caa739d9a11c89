"""Reads what options and arguments name: texts, files, attachments, and standard input."""

from __future__ import annotations

import io
import selectors
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TextIO

from pydantic import ValidationError

from ...core.errors import InvalidArgument
from ...core.validation import describe_failure
from ...harness import GenerationOptions, Policy, Worker
from ...role_resolution import Role
from ..service.pauses import read_json
from .options import AgentOptions
from .output import Output

MAX_STDIN_BYTES: Final = 1_048_576
"""The most that `ask` reads from standard input. Larger data belongs in an attachment."""

STDIN_SECONDS: Final = 5.0
"""How long `ask` waits for the first byte from a pipe if the command line has a message already."""

_SAY_SOMETHING: Final = "write worldagent ask 'TEXT', or pipe the message to it: echo TEXT | worldagent ask"
_NOT_TEXT: Final = "convert it to UTF-8, or write it to a file and give that with --attach FILE"
_NOT_READ: Final = (
    f"note: standard input is open, but no data came within {STDIN_SECONDS:g} s, so the message is sent without it. "
    "If there is no data, close it with </dev/null. If it is slow, pipe the complete message to `worldagent ask -`, "
    "which waits"
)


def one_reader(options: AgentOptions, name: str, given: str | None) -> None:
    """Refuse two options that both read standard input, before anything is read.

    Args:
        options: The command's options.
        name: The option or argument that can read standard input besides role and workers.
        given: Its value.

    Raises:
        InvalidArgument: Two of them are `-`; the error names both.
    """
    readers = [*([name] if given == "-" else []), *_readers(options)]
    if len(readers) > 1:
        raise InvalidArgument(
            f"{readers[0]} and {readers[1]} both read standard input", remedy="give one of them as @FILE or as text"
        )


def _readers(options: AgentOptions) -> list[str]:
    """The options that read standard input."""
    workers = (("--worker", item.partition("=")[2]) for item in options.worker or ())
    return [option for option, value in (("--role", options.role), *workers) if value == "-"]


def message(options: AgentOptions, given: str | None, output: Output) -> str:
    """The text of a message: TEXT as it is written, with the data from standard input below it.

    Args:
        options: The command's options. If one of them reads standard input, the message does not.
        given: TEXT; `-` or None reads only standard input.
        output: Where a note goes if standard input was not read.

    Raises:
        InvalidArgument: There is no message, it is not UTF-8, or standard input holds more than 1 MiB.
    """
    if given is None and (sys.stdin is None or sys.stdin.isatty()):
        raise InvalidArgument("there is no message", remedy=_SAY_SOMETHING)
    if given is None or given == "-":
        text = decoded("standard input, read for TEXT,", _bounded(sys.stdin))
        if given is None and not text.strip():
            raise InvalidArgument("there is no message: standard input is empty", remedy=_SAY_SOMETHING)
        return text
    text = _encodable("TEXT", given)
    data = "" if _readers(options) else _piped(output)
    return f"{text}\n\n{data}" if data.strip() else text


def _piped(output: Output) -> str:
    """The data that another program or a file gives on standard input; empty if there is none."""
    stdin = sys.stdin
    if stdin is None or stdin.isatty():
        return ""
    try:
        if not _has_data(stdin):
            output.note(_NOT_READ)
            return ""
        data = _bounded(stdin)
    except OSError:  # such as standard input that `nohup` opened for writing, or a folder
        return ""
    return decoded("standard input", data, remedy=_NOT_TEXT)


def _has_data(stdin: TextIO) -> bool:
    """Whether a read returns at once, with data or the end. A daemon can keep a pipe open that no program writes to."""
    try:
        handle = stdin.fileno()
    except io.UnsupportedOperation:  # it is in memory
        return True
    if sys.platform == "win32":  # select() takes only sockets there
        return True
    # select() refuses handles from 1024 on, and epoll() refuses files.
    with getattr(selectors, "PollSelector", selectors.SelectSelector)() as selector:
        selector.register(handle, selectors.EVENT_READ)
        return bool(selector.select(STDIN_SECONDS))


def _bounded(stdin: TextIO) -> bytes:
    data = stdin.buffer.read(MAX_STDIN_BYTES + 1)
    if len(data) > MAX_STDIN_BYTES:
        raise InvalidArgument(
            f"standard input must hold at most {MAX_STDIN_BYTES:,} bytes for a message",
            remedy="shorten it, or write it to a file and give that with --attach FILE",
        )
    return data


def text(option: str, given: str) -> str:
    """The text that an option gives: TEXT, `@FILE`, `-`, or `@@...` for a text that begins with `@`.

    Raises:
        InvalidArgument: It cannot be read or is not UTF-8; the error names the option and the file.
    """
    if given == "-":
        return decoded(f"standard input, read for {option},", sys.stdin.buffer.read())
    if given.startswith("@@"):
        return _encodable(option, given[1:])
    return _file(option, Path(given[1:])) if given.startswith("@") else _encodable(option, given)


def role(given: str | None) -> Role | None:
    """The call role that `--role` gives.

    Raises:
        InvalidArgument: As for `text`.
        RoleInvalid: The role is empty.
    """
    return None if given is None else Role("command line", text("--role", given))


def workers(given: Iterable[str] | None) -> tuple[Worker, ...]:
    """The workers that `--worker NAME=INSTRUCTIONS` gives.

    Raises:
        InvalidArgument: One has no `=`, or its file cannot be read.
        FunctionInvalid: A name or its instructions are not valid.
    """
    pairs = (pair("--worker", item) for item in given or ())
    return tuple(Worker(name, text("--worker", instructions)) for name, instructions in pairs)


def modes(given: Iterable[str] | None) -> dict[str, Role]:
    """The call roles that `--mode NAME=TEXT` gives, by the name of their mode.

    Raises:
        InvalidArgument: One has no `=`, its file cannot be read, or its name is given twice.
        RoleInvalid: A role is empty, or its name cannot be shown.
    """
    found: dict[str, Role] = {}
    for name, content in (pair("--mode", item) for item in given or ()):
        if name in found:
            raise InvalidArgument(f"--mode {name[:40]!r} is given twice", remedy="give each mode a name of its own")
        found[name] = Role(name, text("--mode", content))
    return found


def generation(options: AgentOptions) -> GenerationOptions:
    """How the model generates its answers: `--temperature`, `--max-tokens`, `--reasoning-effort` and `--header`.

    Raises:
        InvalidArgument: A value is not valid, or a header has no `=`; the error names the option and shows no header.
    """
    given: dict[str, Any] = {name: getattr(options, name) for name in ("temperature", "max_tokens", "reasoning_effort")}
    for name, value in given.items():
        _check_generation(options.option_name(name), name, value)
    headers: dict[str, str] = {}
    for item in options.header or ():
        name, equals, value = item.partition("=")
        if not equals:  # never show the value, which can be the secret
            raise InvalidArgument("--header has no '='", remedy="write --header NAME=VALUE or --header NAME=@FILE")
        headers[name.strip()] = text("--header", value)
        _check_generation("--header", "headers", headers)
    given["headers"] = headers or None
    return GenerationOptions(**given)


def _check_generation(option: str, name: str, value: object) -> None:
    try:
        GenerationOptions.model_validate({name: value})
        return
    except ValidationError as failure:
        problem, _, remedy = describe_failure(failure).partition(": ")[2].partition("; ")
    raise InvalidArgument(f"{option}: {problem}", remedy=remedy or f"give a valid value, or omit {option}")


def policy(given: Path | None) -> Policy | None:
    """The policy in the file that `--policy` names.

    Raises:
        PolicyInvalid: It cannot be read; the error names file and line.
        MissingExtra: The extra `yaml` is not installed.
    """
    if given is None:
        return None
    from ...harness.gate import load_policy

    return load_policy(expanded("--policy", given))


def expanded(option: str, path: Path) -> Path:
    """A path with a leading `~` or `~USER` replaced by the user's home.

    Raises:
        InvalidArgument: That user is not known; the error names the option.
    """
    with suppress(RuntimeError):
        return path.expanduser()
    raise InvalidArgument(f"{option} {str(path)!r} must not begin with an unknown user", remedy="give an absolute path")


def task_params(document: str | None, pairs: Iterable[str] | None) -> dict[str, Any]:
    """A task's params: the JSON object of `--params`, overridden by each `--param KEY=VALUE`.

    Raises:
        InvalidArgument: `--params` is not a JSON object, or a pair has no `=`.
    """
    given: dict[str, Any] = {} if document is None else json_object("--params", text("--params", document))
    return given | dict(pair("--param", item) for item in pairs or ())


def _file(option: str, path: Path) -> str:
    problem: str | None = None
    data = b""
    try:
        data = path.expanduser().read_bytes()
    except OSError as error:
        problem = error.strerror or type(error).__name__
    except ValueError:  # a null byte
        problem = "not a file name"
    if problem is not None:
        raise InvalidArgument(
            f"{option} names the file {str(path)!r}: {problem}",
            remedy="give a file that can be read, or write @@ for a text that begins with @",
        )
    return decoded(f"the file {str(path)!r}, read for {option},", data)


def decoded(what: str, data: bytes, *, remedy: str = "convert it to UTF-8") -> str:
    """Return `data` as text, without a byte order mark and without line breaks at its end.

    Args:
        what: What was read, for the error.
        data: The bytes.
        remedy: The remedy of the error.

    Raises:
        InvalidArgument: It is not UTF-8.
    """
    try:
        return data.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        at = error.start
    raise InvalidArgument(f"{what} is not UTF-8 at byte {at}", remedy=remedy)


def _encodable(option: str, text: str) -> str:
    try:
        text.encode("utf-8")
        return text
    except UnicodeEncodeError as error:
        at = error.start
    raise InvalidArgument(f"{option} is not UTF-8 at character {at}", remedy="use a terminal with UTF-8, or a file")


def pair(option: str, given: str) -> tuple[str, str]:
    """The name and the text of `NAME=TEXT`.

    Raises:
        InvalidArgument: It has no `=`.
    """
    key, equals, value = given.partition("=")
    if not equals or not key.strip():
        raise InvalidArgument(f"{option} {key[:40]!r} has no '='", remedy=f"write {option} NAME=TEXT")
    return key.strip(), value


def json_object(option: str, document: str) -> dict[str, Any]:
    """Read the JSON object that an option gives.

    Raises:
        InvalidArgument: The text is not a JSON object; the error names the option.
    """
    remedy = 'write it as \'{"key": "value"}\''
    found = read_json(document, option, remedy=remedy)
    if isinstance(found, dict):
        return found
    raise InvalidArgument(f"{option} must be a JSON object", remedy=remedy)


def attachments(given: Iterable[str] | None) -> tuple[Path | str, ...]:
    """The files and addresses that `--attach FILE|URL` names. They are read when the turn begins.

    Raises:
        InvalidArgument: One of them is empty.
    """
    return tuple(attachment(item) for item in given or ())


def attachment(given: str, option: str = "--attach") -> Path | str:
    """A file or an address.

    Raises:
        InvalidArgument: It is empty, or begins with an unknown user.
    """
    if given.lower().startswith(("http://", "https://")):
        return given
    path = None
    if given.strip():
        with suppress(RuntimeError):
            path = Path(given).expanduser()
    if path is None:
        raise InvalidArgument(f"{option} names no file", remedy="give the path of a file, or https://...")
    return path
