"""Runs a module of dspy whose predictors call the agent's model (T14).

The module gets no model and no role. Its predictors reach an adapter, which hands each call to the turn. So the code of
the module, its trace and its callbacks never hold a role. `graphs.modules` makes the calls.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import secrets
import threading
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Final, NoReturn

import dspy
from pydantic.fields import FieldInfo

from ..core.errors import FunctionInvalid
from .adapter import ROLE, RoleAdapter, Signature
from .callbacks import RoleFreeCallback, dspy_callbacks
from .predictor import ModelCaller, Predictor
from .programs import called, parts, passes_on, predictors
from .signature import check_signature, describe_role, named, without_role

Module = dspy.Module

_UNSENT_OPTIONS: Final = frozenset({"rollout_id", "n", "num_generations", "cache"})
"""Options of dspy that are not sent: what they ask for is done by the agent, or refused."""

_STOPPED_CALL_SECONDS: Final = 0.05
"""What a call takes that a module makes after its turn has stopped, so that a loop of them uses no processor."""

_OPEN_RUNS: Final[dict[str, ModuleRun]] = {}
"""The open runs by key. A module has only the key: what it keeps, such as a trace, must not lead to the turn's role."""

_NOT_IN_NAMES = re.compile(r"[^\w.-]+")


class ModuleStopped(BaseException):
    """Ends a module's thread when its turn stops. A module that catches every `Exception` must not continue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorCall:
    """One call of a predictor in a module.

    Attributes:
        predictor: The predictor. Its name is the one that a role's `applies_to` is compared with.
        inputs: The input fields.
        options: Options of the call, such as `temperature`.
    """

    predictor: Predictor
    inputs: Mapping[str, Any]
    options: Mapping[str, Any]

    def tuned(self, caller: ModelCaller) -> ModelCaller:
        """The model with the call's options."""
        return replace(caller, generation={**caller.generation, **self.options}) if self.options else caller


Ask = Callable[[PredictorCall], Awaitable[Mapping[str, Any]]]
"""Makes a call and returns its output fields."""


def predictor_name(prefix: str, path: str) -> str:
    """The name of a predictor, which a role's `applies_to` is compared with.

    Args:
        prefix: The name of the module's entry Signature, or of its shape.
        path: Its path in the module.
    """
    return f"{prefix}.{_NOT_IN_NAMES.sub('_', path)}"


def has_fields(signature: Signature, entry: Signature) -> bool:
    """Whether a Signature has all fields of another one. A role does not count: no Signature has to declare it."""
    inputs, outputs = set(signature.input_fields), set(signature.output_fields)
    return set(entry.input_fields) - {ROLE} <= inputs and set(entry.output_fields) <= outputs


def check_module(module: object, *, what: str) -> dspy.Module:
    """Refuse a module that cannot run on an agent's model.

    Args:
        module: The module.
        what: The place where it was passed, for the error.

    Raises:
        FunctionInvalid: It is not a module, a predictor has its own model, or a Signature cannot carry a role.
    """
    if not isinstance(module, dspy.Module):
        got, remedy = repr(type(module).__name__), "pass an instance of your module"
        if isinstance(module, type):
            name = module.__name__
            is_signature = issubclass(module, dspy.Signature)
            got = f"the {'Signature' if is_signature else 'class'} {name!r}"
            remedy = f"pass {f'dspy.Predict({name})' if is_signature else f'an instance of it, such as {name}()'}"
        raise FunctionInvalid(f"{what} must be a dspy.Module, got {got}", remedy=remedy)
    for path, predict in predictors(module):
        if predict.lm is not None:
            _refuse_model(f"the predictor {path!r} of {what}")
        signature: Any = predict.signature
        check_signature(signature)
    return module


def check_inputs(module: dspy.Module, names: Collection[str], *, what: str) -> None:
    """Refuse params that a module cannot be called with, as far as the signature of its `forward` tells.

    Args:
        module: The module.
        names: The names of the params.
        what: The place where it was passed, for the error.

    Raises:
        FunctionInvalid: It has no `forward`, an input without a default is missing, or it takes no such input.
    """
    method, _ = called(module)
    if method is None:
        raise FunctionInvalid(
            f"{what} has neither `forward` nor `aforward`", remedy="write one of them; it takes the params by name"
        )
    needed, taken = _inputs_of(module, method)
    missing = [name for name in needed if name not in names]
    unknown = [] if taken is None else [name for name in names if name not in taken]
    if missing or unknown:
        problems = [f"it lacks {missing}"] if missing else []
        problems += [f"the module has no input for {unknown}"] if unknown else []
        known = needed if taken is None else taken
        remedy = f"name its fields as the inputs of the module, which are {list(known)}"
        if ROLE in missing:
            remedy = (
                "write role=None there, and pass it to no predictor: the agent adds the role where the model is called"
            )
        raise FunctionInvalid(f"the model `params` does not fit {what}: {' and '.join(problems)}", remedy=remedy)


def _inputs_of(module: dspy.Module, method: Callable[..., Any]) -> tuple[list[str], list[str] | None]:
    """The inputs of a module that it must get, and all that it takes; None if it takes any."""
    if passes_on(method):
        predictor: Any = module if isinstance(module, dspy.Predict) else module.predict
        fields = without_role(predictor.signature).input_fields
        return [name for name, info in fields.items() if info.is_required()], list(fields)
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):  # not a Python function
        return [], None
    by_name = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    needed = [each.name for each in by_name if each.default is each.empty]
    return needed, None if takes_any else [each.name for each in by_name]


def _refuse_model(what: str) -> NoReturn:
    raise FunctionInvalid(
        f"{what} has a model of its own, which the turn could neither count nor record",
        remedy="remove it with set_lm(None); the module runs on the agent's model",
    )


class _TurnLM(dspy.BaseLM):
    """The model that a module sees. Its predictors never call it.

    Attributes:
        run: The key of the run that it belongs to, also in its copies.
    """

    def __init__(self, run: str) -> None:
        super().__init__("agent/model", cache=False)
        self.run = run

    def __call__(self, *given: Any, **more: Any) -> NoReturn:
        _refuse_call()

    async def acall(self, *given: Any, **more: Any) -> NoReturn:
        _refuse_call()

    def __deepcopy__(self, memo: object) -> _TurnLM:
        copied: _TurnLM = self.copy()
        return copied


def _refuse_call() -> NoReturn:
    raise FunctionInvalid(
        "a module must not call a model directly or through an adapter of its own",
        remedy="call a predictor, such as dspy.Predict, and leave the adapter to the agent",
    )


class _TurnAdapter(RoleAdapter):
    """Hands the calls of predictors to the turn. `dspy.Refine` makes an instance of its class without arguments."""

    def __init__(self, run: str = "") -> None:
        super().__init__()
        self._run = run

    async def acall(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        run = _OPEN_RUNS.get(self._run)
        if run is None:
            await asyncio.sleep(_STOPPED_CALL_SECONDS)
            raise ModuleStopped
        return [await run.ask_from_task(lm, lm_kwargs, signature, demos, inputs)]

    def __call__(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        run = _OPEN_RUNS.get(self._run)
        if run is None:
            threading.Event().wait(_STOPPED_CALL_SECONDS)
            raise ModuleStopped
        return [run.ask_from_thread(lm, lm_kwargs, signature, demos, inputs)]


class Predict(dspy.Predict):
    """A predictor in a run. A module can pass `role=None` on, as it does to a Signature that declares the field."""

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        """Call the model of the turn."""
        return super().__call__(*args, **_without_none(inputs))

    async def acall(self, *args: Any, **inputs: Any) -> Any:
        """Call the model of the turn."""
        return await super().acall(*args, **_without_none(inputs))


def _without_none(inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs without a role that is None. Any other one is refused where the turn is asked."""
    return {name: value for name, value in inputs.items() if name != ROLE or value is not None}


class ModuleRun:
    """One run of a module.

    Args:
        module: The module; it runs as a copy, so that runs share nothing.
        ask: Makes the calls of its predictors.
        entry: The Signature that the role attaches to. It is that of all predictors with its fields.
        prefix: The beginning of the names of predictors, if there is no entry Signature.

    Attributes:
        module: The copy that runs.
    """

    def __init__(self, module: dspy.Module, ask: Ask, *, entry: Signature | None, prefix: str) -> None:
        self.module = module.deepcopy()
        self._ask, self._entry = ask, entry
        self._prefix = prefix if entry is None else entry.__name__
        for path, predict in predictors(self.module):
            named_one: Any = predict
            named_one.name_in_turn = predictor_name(self._prefix, path)  # copies of it have it too
            named_one.about_role = describe_role(named_one.signature)
            if type(predict) is dspy.Predict:
                named_one.__class__ = Predict
        _undeclare_roles(self.module)
        self._loop = asyncio.get_running_loop()
        self._key = secrets.token_hex(8)
        self._stopped = False
        self._asked: set[Future[Any]] = set()

    @property
    def is_async(self) -> bool:
        """Whether a call of the module runs its `aforward`; otherwise it is called on a thread."""
        return called(self.module)[1]

    @contextmanager
    def opened(self, callbacks: Iterable[object], *, hide: Callable[[Any], Any]) -> Generator[None]:
        """While it is open, the predictors of the module reach the turn.

        Args:
            callbacks: Those of dspy see the calls of the module.
            hide: Takes texts of the role out of what they see.
        """
        lm, adapter = _TurnLM(self._key), _TurnAdapter(self._key)
        settings = {"lm": lm, "adapter": adapter, "disable_history": True, "trace": []}
        self.hide = hide
        # The module can see them, so they must not lead to the role either.
        seen = [RoleFreeCallback(each, partial(_hidden, self._key)) for each in dspy_callbacks(callbacks)]
        _OPEN_RUNS[self._key] = self
        try:
            with dspy.context(**settings, callbacks=seen, track_usage=False, stream_listeners=[], send_stream=None):
                yield
        finally:
            self._stopped = True
            del _OPEN_RUNS[self._key]
            for future in tuple(self._asked):
                future.cancel()

    async def ask(
        self, lm: Any, options: Mapping[str, Any], signature: Signature, demos: Sequence[Any], inputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Make the call of one predictor."""
        predict = (dspy.settings.caller_modules or [None])[-1]
        # A predictor that the code makes as it runs has no path.
        name = getattr(predict, "name_in_turn", None) or predictor_name(self._prefix, signature.__name__)
        if getattr(lm, "run", None) != self._key:
            _refuse_model(f"the predictor {name!r}")
        given = {key: value for key, value in {**lm.kwargs, **options}.items() if value is not None}
        if (given.get("n") or given.get("num_generations") or 1) > 1:
            raise FunctionInvalid(
                f"the predictor {name!r} must not ask for several completions",
                remedy="call it several times",
            )
        if inputs.get(ROLE) is not None:
            raise FunctionInvalid(
                f"the module passes a role to the predictor {name!r}, but roles are resolved and added by the agent",
                remedy="leave it out there, and pass role= where the module's task begins",
            )
        if self._entry is not None and has_fields(signature, self._entry):
            name = self._entry.__name__
        check_signature(signature)
        made_of: Any = signature  # mypy takes no class for a key
        own_signature = _named(made_of, name, signature.instructions)
        about_role = None if ROLE in signature.fields else getattr(predict, "about_role", None)
        predictor = Predictor(own_signature, demos=[dict(demo) for demo in demos], about_role=about_role)
        own = {key: inputs[key] for key in predictor.signature.input_fields if key in inputs}
        sent = {key: value for key, value in given.items() if key not in _UNSENT_OPTIONS}
        return dict(await self._ask(PredictorCall(predictor=predictor, inputs=own, options=sent)))

    async def ask_from_task(self, *given: Any) -> dict[str, Any]:
        """The same for a task of the module, which can run on an event loop of the module's own."""
        if asyncio.get_running_loop() is self._loop:
            return await self.ask(*given)
        with self._from_another_thread(given) as future:
            return await asyncio.wrap_future(future)
        raise ModuleStopped

    def ask_from_thread(self, *given: Any) -> dict[str, Any]:
        """The same for a caller that cannot wait, on a thread of the module."""
        try:
            running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            raise FunctionInvalid(
                "the module calls a model in its aforward without await, which would stop the event loop",
                remedy="write `await self.NAME.acall(...)` there",
            )
        with self._from_another_thread(given) as future:
            return future.result()
        raise ModuleStopped

    @contextmanager
    def _from_another_thread(self, given: Sequence[Any]) -> Generator[Future[dict[str, Any]]]:
        """Make a call from another thread. Nothing after the block runs unless the turn has stopped."""
        future = asyncio.run_coroutine_threadsafe(self.ask(*given), self._loop)
        self._asked.add(future)
        if self._stopped:  # in the meantime
            future.cancel()
        try:
            yield future
        except (CancelledError, asyncio.CancelledError):
            if not self._stopped:
                raise
        finally:
            self._asked.discard(future)


def _undeclare_roles(module: dspy.Module) -> None:
    """Remove declared roles from all Signatures that a module has. Its code sees no role, and must not wait for one."""
    for _, part in parts(module):
        for name, value in [*vars(part).items()]:
            if isinstance(value, type) and issubclass(value, dspy.Signature):
                setattr(part, name, without_role(value))
            elif isinstance(value, dict) and isinstance(value.get(ROLE), FieldInfo):  # input fields, as they are copied
                setattr(part, name, {field: info for field, info in value.items() if field != ROLE})


def _hidden(run: str, value: Any) -> Any:
    """What callbacks see of a value; nothing after the run."""
    opened = _OPEN_RUNS.get(run)
    return None if opened is None else opened.hide(value)


@lru_cache(maxsize=256)  # making a class is slow
def _named(signature: Signature, name: str, instructions: str) -> Signature:
    return named(signature, name, instructions)
