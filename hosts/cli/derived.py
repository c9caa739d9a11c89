"""Commands made from operations alone, such as those of a capability: options from the model, a table of the answer."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import fields, replace
from types import NoneType
from typing import Any, Final, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from ..service.operation import Operation
from ..service.validation import validated
from .command import command
from .operating import answer_to, fields_of, opened
from .options import SpeakerOptions
from .output import Output, lines_of, records_table
from .sources import json_object, text

_SHARED: Final = ("workspace", "account", "channel")  # options of every command
_PLAIN: Final = (str, int, float, bool)
_TAKEN: Final = {"--help"} | {
    option for each in fields(SpeakerOptions) for option in each.metadata["declared"].param_decls or [f"--{each.name}"]
}
_GIVEN: Final = "given_"  # before the names of parameters, so that a field can have the name of an option group


def commands_of(name: str, help: str, operations: Iterable[Operation]) -> typer.Typer:
    """Return a group of commands, one for each operation that does not say why it has none.

    The name of a command is that of its operation, without that of the group: `notes_add` is `notes add`.

    Args:
        name: The name of the group.
        help: What the group is about.
        operations: The operations.
    """
    app = typer.Typer(name=name, help=help, no_args_is_help=True)
    app.callback()(lambda: None)  # without one, typer makes a group of one command that command
    for each in operations:
        if "command" not in each.absent:
            _add(app, each, each.name.removeprefix(f"{name}_").replace("_", "-"))
    return app


def _add(app: typer.Typer, found: Operation, name: str) -> None:
    fields = {each: field for each, field in found.arguments.model_fields.items() if each not in _SHARED}
    names = {each: _option(str(app.info.name), each) for each in fields}

    async def work(options: SpeakerOptions, output: Output, **given: Any) -> None:
        named = {each.removeprefix(_GIVEN): value for each, value in given.items() if value not in (None, [])}
        for each in named.keys() & {each for each, field in fields.items() if _type_of(field) is dict}:
            named[each] = json_object(names[each], text(names[each], named[each]))
        shared = {each: getattr(options, each) for each in _SHARED if each in found.arguments.model_fields}
        checked = validated(found.arguments, shared | named, texts=True)
        had = options.capability or []
        if found.capability and found.capability not in had:  # such a command works on an agent that has it
            options = replace(options, capability=[*had, found.capability])
        async with opened(options, output) as workspace:
            answer = await answer_to(workspace, options, found, checked)
        output.result(fields_of(answer), _shown(fields_of(answer)))

    def declared(options: SpeakerOptions, output: Output) -> None: ...

    keyword = inspect.Parameter.KEYWORD_ONLY
    shown = [
        inspect.Parameter(f"{_GIVEN}{each}", keyword, default=_declared(each, names[each], field))
        for each, field in fields.items()
    ]
    declared.__doc__ = f"{found.description}\n\n[bold]Example[/bold]\n\n  worldagent {app.info.name} {name}"
    declared.__annotations__ |= {f"{_GIVEN}{each}": _annotation(field) for each, field in fields.items()}
    declared.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # inspect reads it
        [*inspect.signature(declared).parameters.values(), *shown]
    )
    command(app, name, work=work, asks=(found.name,))(declared)


def _option(group: str, name: str) -> str:
    """The option of an argument. One that every command has already keeps its meaning: `--notes-json`."""
    option = f"--{name.replace('_', '-')}"
    return f"--{group}-{option[2:]}" if option in _TAKEN else option


def _type_of(field: FieldInfo) -> Any:
    """What an option takes for a field: a plain type, a list of texts, or a JSON object."""
    kinds = [each for each in get_args(field.annotation) or (field.annotation,) if each is not NoneType]
    if get_origin(field.annotation) is list or any(get_origin(each) is list for each in kinds):
        return list
    plain: set[Any] = {type(each) if isinstance(each, str) else each for each in kinds}  # a Literal has its texts
    return plain.pop() if len(plain) == 1 and plain <= {*_PLAIN} else dict


def _annotation(field: FieldInfo) -> Any:
    kind = _type_of(field)
    return list[str] | None if kind is list else bool | None if kind is bool else str | None


def _declared(name: str, option: str, field: FieldInfo) -> Any:
    kind = _type_of(field)
    default = ... if field.is_required() else None  # what is left out has the default of the model
    if kind is bool:
        off = "" if field.default is False and NoneType not in get_args(field.annotation) else f"/--no-{option[2:]}"
        return typer.Option(default, f"{option}{off}", help=field.description)
    metavar = "JSON|@FILE|-" if kind is dict else "TEXT" if kind in (str, list) else "NUMBER"
    if field.is_required() and kind is not dict:
        return typer.Argument(..., metavar=name.upper(), help=field.description)
    return typer.Option(default, option, metavar=metavar, help=field.description)


def _shown(answer: dict[str, Any]) -> str | None:
    """An answer for a person: the one list of records in it as a table, else its fields; None if there are none."""
    records = next(iter(answer.values())) if len(answer) == 1 else None
    if not (isinstance(records, list) and records and all(isinstance(each, dict) for each in records)):
        return lines_of(answer) or None
    heads = dict.fromkeys(name for each in records for name in each)
    return records_table({each.upper(): lambda record, each=each: record.get(each) for each in heads}, records)
