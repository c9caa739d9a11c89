"""Runs a module of dspy whose predictors call the agent's model (T14).

The module gets no model and no role. Its predictors reach an adapter, which hands each call to the turn. So the code of
the module, its trace and its callbacks never hold a role. `graphs.modules` makes the calls.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

import dspy

from ..core.errors import FunctionInvalid
from .adapter import RoleAdapter, Signature
from .callbacks import dspy_callbacks
from .predictor import ModelCaller, Predictor
from .signature import check_signature, named

Module = dspy.Module

_OWN: Final = frozenset({"rollout_id", "n", "num_generations", "cache"})
"""Options of dspy that are not sent: what they ask for is done by the agent, or refused."""

_ODD = re.compile(r"[^\w.-]+")


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


def predictor_names(module: dspy.Module, prefix: str) -> dict[str, str]:
    """The names of a module's predictors, `PREFIX.PATH`, by what identifies a predictor and its copies.

    Args:
        module: The module.
        prefix: The name of its entry Signature, or of its shape.
    """
    return {predict.stage: f"{prefix}.{_ODD.sub('_', path)}" for path, predict in module.named_predictors()}


def has_fields(signature: Signature, entry: Signature) -> bool:
    """Whether a Signature has all fields of another one."""
    inputs, outputs = set(signature.input_fields), set(signature.output_fields)
    return set(entry.input_fields) <= inputs and set(entry.output_fields) <= outputs


def check_module(module: object, *, what: str) -> dspy.Module:
    """Refuse a module that cannot run on an agent's model.

    Args:
        module: The module.
        what: The place where it was passed, for the error.

    Raises:
        FunctionInvalid: It is not a module, a predictor has its own model, or a Signature has a role.
    """
    if not isinstance(module, dspy.Module):
        raise FunctionInvalid(
            f"{what} must be a dspy.Module, got {type(module).__name__!r}", remedy="pass an instance of your module"
        )
    for path, predict in module.named_predictors():
        if predict.lm is not None:
            _refuse_model(f"the predictor {path!r} of {what}")
        signature: Any = predict.signature
        check_signature(signature)
    return module


def _refuse_model(what: str) -> NoReturn:
    raise FunctionInvalid(
        f"{what} has a model of its own, which the turn could neither count nor record",
        remedy="remove it with set_lm(None); the module runs on the agent's model",
    )


class _NoModel:
    """The engine of the model that a module sees. Predictors never reach it."""

    def complete(self, request: object) -> NoReturn:
        raise FunctionInvalid(
            "a module must not call a model directly or through an adapter of its own",
            remedy="call a predictor, such as dspy.Predict, and leave the adapter to the agent",
        )


class _NoAsyncModel(_NoModel):
    async def complete(self, request: object) -> NoReturn:  # type: ignore[override]  # dspy awaits this one
        super().complete(request)


class _TurnAdapter(RoleAdapter):
    """Hands the calls of predictors to the turn. `dspy.Refine` makes an instance of its class without arguments."""

    def __init__(self, run: ModuleRun | None = None) -> None:
        super().__init__()
        self._run = run

    async def acall(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        assert self._run is not None
        return [await self._run.ask(lm, lm_kwargs, signature, demos, inputs)]

    def __call__(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        assert self._run is not None
        return [self._run.ask_from_thread(lm, lm_kwargs, signature, demos, inputs)]


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
        self._names = predictor_names(module, prefix if entry is None else entry.__name__)
        self._loop = asyncio.get_running_loop()
        self._signatures: dict[tuple[Signature, str], Signature] = {}
        self._stopped = False
        self._asked: set[Future[Any]] = set()

    @property
    def is_async(self) -> bool:
        """Whether the module has an `aforward`; otherwise it is called on a thread."""
        return inspect.iscoroutinefunction(getattr(self.module, "aforward", None))

    @contextmanager
    def opened(self, callbacks: Iterable[object] = ()) -> Generator[None]:
        """While it is open, the predictors of the module reach the turn, and `callbacks` of dspy see its calls."""
        lm: Any = dspy.LM("agent/model", engine=_NoModel(), async_engine=_NoAsyncModel(), cache=False, num_retries=0)
        lm.turn_of_the_agent = self  # copies of it have it too
        settings = {"lm": lm, "adapter": _TurnAdapter(self), "disable_history": True, "trace": []}
        seen = dspy_callbacks(callbacks)
        try:
            with dspy.context(**settings, callbacks=seen, track_usage=False, stream_listeners=[], send_stream=None):
                yield
        finally:
            self._stopped = True
            for future in tuple(self._asked):
                future.cancel()

    async def ask(
        self, lm: Any, options: Mapping[str, Any], signature: Signature, demos: Sequence[Any], inputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Make the call of one predictor."""
        [*_, predict] = dspy.settings.caller_modules
        name = self._names.get(predict.stage, signature.__name__)
        if getattr(lm, "turn_of_the_agent", None) is not self:
            _refuse_model(f"the predictor {name!r}")
        given = {key: value for key, value in {**lm.kwargs, **options}.items() if value is not None}
        if (given.get("n") or given.get("num_generations") or 1) > 1:
            raise FunctionInvalid(
                f"the predictor {name!r} must not ask for several completions",
                remedy="call it several times",
            )
        if self._entry is not None and has_fields(signature, self._entry):
            name = self._entry.__name__
        if (signature, name) not in self._signatures:
            self._signatures[signature, name] = named(signature, name, signature.instructions)
        predictor = Predictor(self._signatures[signature, name], demos=[dict(demo) for demo in demos])
        own = {key: inputs.get(key) for key in signature.input_fields}
        sent = {key: value for key, value in given.items() if key not in _OWN}
        return dict(await self._ask(PredictorCall(predictor=predictor, inputs=own, options=sent)))

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
        if self._stopped:
            raise ModuleStopped
        future = asyncio.run_coroutine_threadsafe(self.ask(*given), self._loop)
        self._asked.add(future)
        try:
            return future.result()
        except CancelledError:
            pass
        finally:
            self._asked.discard(future)
        raise ModuleStopped
