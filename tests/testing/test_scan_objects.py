"""The scan walks through objects, exceptions and captured logs, and can fail on each."""

import array
import collections
import contextvars
import dataclasses
import functools
import io
import logging
import pickle
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest
from pydantic import BaseModel, ConfigDict, PrivateAttr, SecretStr

from support.leaks import LONG, SHORT
from worldagent.testing import RoleLeak, ScriptedLM, assert_no_role_leak, scan_for_roles


@dataclasses.dataclass
class Data:
    text: Any = None


class Slotted:
    __slots__ = ("__dict__", "__hidden", "empty")

    def __init__(self, hidden: str) -> None:
        self.__hidden = hidden


class Base(BaseModel):
    model_config = ConfigDict(extra="allow")
    text: Any = None
    _private: Any = PrivateAttr(None)

    @classmethod
    def hiding(cls, text: str) -> "Base":
        made = cls()
        made._private = text
        return made


def showing(how: str, text: str) -> object:
    """An object that holds nothing and says it all the same."""
    return type("Shown", (), {how: lambda _: text})()


def closing_over(text: str) -> Callable[[], str]:
    return lambda: text


def with_default(text: str) -> Callable[..., Any]:
    def function(*, value: str = text) -> str:
        return value

    return function


def in_context(text: str) -> contextvars.Context:
    context = contextvars.copy_context()
    context.run(contextvars.ContextVar[str]("role").set, text)
    return context


def failed(how: str, text: str) -> BaseException:
    try:
        if how == "args":
            raise KeyError("plain", {"nested": text})
        if how == "note":
            error = ValueError("plain")
            error.add_note(text)
            raise error
        if how == "attribute":
            error = ValueError("plain")
            error.lm_response = text  # type: ignore[attr-defined]  # as dspy's parse error has it
            raise error
        if how == "group":
            raise ExceptionGroup("plain", [ValueError(1), ExceptionGroup("inner", [ValueError(text)])])
        try:
            raise ValueError(text)
        except ValueError as cause:
            if how == "cause":
                raise TypeError("plain") from cause
            raise TypeError("plain") from None  # still the context
    except Exception as caught:
        return caught


def record(how: str, text: str) -> logging.LogRecord:
    if how == "exc_info":
        error = ValueError(text)
        made = logging.makeLogRecord({"msg": "plain", "exc_info": (ValueError, error, None)})
    else:
        made = logging.makeLogRecord({"msg": "%s and %s", "args": ("plain", "plain")} | {how: text, "level": 10})
    return made


PLANTS: dict[str, Callable[[str], object]] = {
    "text": str,
    "bytes": lambda text: text.encode("utf-16-le"),
    "array": lambda text: array.array("B", text.encode()),
    "pickle": lambda text: pickle.dumps({"role": text}),
    "list in tuple in deque": lambda text: collections.deque([([text],)]),
    "set": lambda text: {text, "x"},
    "key of a dict": lambda text: {text: 1},
    "mapping proxy": lambda text: types.MappingProxyType({"a": text}),
    "context": in_context,
    "part of a text": lambda text: f"You said: {text}!",
    "dataclass": lambda text: Data(Data([text])),
    "slot": Slotted,
    "model": lambda text: Base(text=text),
    "extra field of a model": lambda text: Base.model_validate({"more": text}),
    "private field of a model": Base.hiding,
    "secret": SecretStr,
    "path in an object": lambda text: Data(Path("/tmp") / text),
    "closure": closing_over,
    "default": with_default,
    "bound method": lambda text: Data(text).__repr__,
    "repr": lambda text: showing("__repr__", text),
    "str": lambda text: showing("__str__", text),
    "text file in memory": io.StringIO,
    "simple namespace": lambda text: types.SimpleNamespace(text=text),
    "prediction": lambda text: dspy.Prediction(answer=text),
    **{f"exception: {how}": functools.partial(failed, how) for how in ("args", "note", "attribute", "group")},
    **{f"exception: {how}": functools.partial(failed, how) for how in ("cause", "context")},
    **{f"log record: {how}": functools.partial(record, how) for how in ("msg", "exc_text", "extra", "exc_info")},
    "log record: args": lambda text: logging.makeLogRecord({"msg": "%s", "args": (Data(text),)}),
}


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS.keys())
@pytest.mark.requirement("R7")
def test_a_planted_role_is_found(plant: Callable[[str], object]) -> None:
    text = SHORT
    with pytest.raises(RoleLeak) as caught:
        assert_no_role_leak([{"clean": 1}, plant(text)], ["no such text at all", text])
    assert {finding.canary for finding in caught.value.report.findings} == {1}
    assert text not in str(caught.value)
    assert not scan_for_roles([{"clean": 1}, plant("clean, too")], text).findings


def test_the_report_names_the_way_to_the_text() -> None:
    report = scan_for_roles({"events": [Data("x"), {"deep": (LONG,)}]}, LONG)
    (finding,) = report.findings
    assert finding.place == "dict 0['events'][1]['deep'][0]"
    assert (finding.encoding, finding.canary, finding.length, finding.offset) == ("utf-8", 0, 400, 0)


def test_a_key_that_holds_a_role_is_not_shown() -> None:
    findings = scan_for_roles({SHORT: LONG}, [SHORT, LONG]).findings
    assert len(findings) == 2
    assert not any(SHORT in finding.place for finding in findings)


def test_a_log_message_put_together_from_its_arguments_is_found() -> None:
    split = logging.makeLogRecord({"msg": f"{LONG[:30]}%s", "args": (LONG[30:60],)})
    (finding,) = scan_for_roles(split, LONG).findings
    assert finding.place.endswith("getMessage()")
    assert finding.length == 60


def test_local_variables_are_searched_when_asked_for() -> None:
    def fail() -> None:
        secret = LONG
        raise ValueError(len(secret))

    with pytest.raises(ValueError, match="400") as caught:
        fail()
    assert not scan_for_roles(caught.value, LONG).findings
    findings = scan_for_roles(caught.value, LONG, frame_locals=True).findings
    assert any("locals of fail" in finding.place for finding in findings)


async def test_a_suspended_coroutine_is_searched_when_asked_for() -> None:
    async def wait(text: str) -> None:
        del text

    coroutine = wait(LONG)
    assert not scan_for_roles(coroutine, LONG).findings
    assert scan_for_roles(coroutine, LONG, frame_locals=True).findings
    coroutine.close()


def test_types_that_may_hold_a_role_can_be_left_out() -> None:
    assert_no_role_leak({"role": Data(LONG)}, LONG, skip=Data)
    assert_no_role_leak([Data(LONG), Slotted(LONG)], LONG, skip=(Data, Slotted))
    with pytest.raises(RoleLeak):
        assert_no_role_leak([Data(LONG), Slotted(LONG)], LONG, skip=Data)


async def test_what_the_scripted_model_recorded_is_no_leak_but_its_history_is() -> None:
    lm = ScriptedLM(["[[ ## answer ## ]]\nx", "[[ ## answer ## ]]\nx"])
    program = dspy.Predict("question, role -> answer")
    with dspy.context(lm=lm, disable_history=True):
        await program.acall(question="q", role=LONG)
    assert lm.calls[0].role == LONG
    assert_no_role_leak(lm, LONG)
    with dspy.context(lm=lm, disable_history=False):
        await program.acall(question="q", role=LONG)
    with pytest.raises(RoleLeak):
        assert_no_role_leak(lm, LONG)
    dspy.clients.base_lm.GLOBAL_HISTORY.clear()


def test_cycles_and_deep_objects_come_to_an_end() -> None:
    ring: list[Any] = []
    ring.append({"self": ring})
    deep: Any = LONG
    for _ in range(20_000):
        deep = [deep]
    assert len(scan_for_roles([ring, deep], LONG).findings) == 1


def test_objects_that_cannot_be_shown_are_walked_all_the_same() -> None:
    class Broken:
        def __init__(self) -> None:
            self.text = LONG

        def __repr__(self) -> str:
            raise RuntimeError

    (finding,) = scan_for_roles(Broken(), LONG).findings
    assert finding.place == "Broken 0.text"


def test_the_error_can_be_pickled_as_parallel_test_runners_do() -> None:
    with pytest.raises(RoleLeak) as caught:
        assert_no_role_leak(LONG, LONG)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.report) == (str(caught.value), caught.value.report)
