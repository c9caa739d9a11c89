"""The Skill Composer: runs a skill package as a task, from `run_skill` and from a conversation alike (T6).

It is a subagent whose graph has the nodes `compose`, `think` and `act`. Code composes, and the role of the turn is in
each call of a model. The instructions are the agent's identity and the package's text. Neither that text nor what is
composed of it is stored: the journal has the name of the skill, the version of its package, and a keyed digest of its
text.
"""

from __future__ import annotations

import json
import logging
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from ..core import canonical_json
from ..core.errors import GraphChanged, ParamsInvalid, SkillInvalid, ToolFailed, ToolNotAllowed, UnknownSkill
from ..core.validation import ClosedModel, same_declaration
from ..graphs.loop.finding import ToolSearch
from ..graphs.loop.graph import composer_graph
from ..graphs.loop.subagents import ComposedTasks, WorkerLoop
from ..graphs.loop.tools import Tools
from ..graphs.shape import SKILL, Shape
from ..graphs.tasks import TaskContext
from ..harness import Function, Registry, Worker, tool
from ..harness.gate import Policy
from ..harness.worker import WorkerRequest, inputs_of
from ..role_resolution.keys import RoleKey
from ..signatures import RUN_SKILL, Signature, skill_signature
from ..tools.shell import ShellResult, run_command
from .allowed_tools import SHELL, AllowedTools, allowed_tools
from .catalogue import SkillCatalogue
from .package import SkillHeader, SkillPackage

INPUT, OUTPUT = "worldagent-input", "worldagent-output"
"""Keys of a package's `metadata`: its files with the JSON Schemas of its input and of its reply."""

_LOG = logging.getLogger("worldagent.skills")

READ_FILE: Final = "read_skill_file"
RUN_SCRIPT: Final = "run_skill_script"

MAX_STEPS: Final = 50
MAX_READ: Final = 60_000  # characters of a file that a model sees at once
_SCRIPT_SECONDS: Final = 60.0
_SCRIPT_OUTPUT: Final = 30_000  # bytes
_INTERPRETERS: Final[Mapping[str, str]] = {".py": shlex.quote(sys.executable), ".sh": "/bin/sh"}


class SkillParams(ClosedModel):
    """What the shape `skill` takes."""

    name: str = Field(description="the name of the skill", min_length=1)
    request: str | None = Field(default=None, description="what it should do; all it needs to know", min_length=1)
    input: dict[str, Any] | None = Field(
        default=None, description="in place of a request, for a skill that declares it"
    )


class SkillResult(ClosedModel):
    """What the shape `skill` gives.

    Attributes:
        skill: The name of the skill.
        reply: Its reply: a text, or JSON if the package declares it.
    """

    skill: str
    reply: Any


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadySkill:
    """A package made ready to run by an agent.

    Attributes:
        package: The package.
        worker: A worker with its inputs, its reply and the names of its tools.
        tools: Its tools.
        allowed: The tools and commands that the package allows.
        prompt: What is added to the instructions of its Signature.
    """

    package: SkillPackage
    worker: Worker
    tools: Tools
    allowed: AllowedTools
    prompt: str


class SkillComposer(ComposedTasks):
    """Composes and runs the skills of one agent.

    Args:
        catalogue: The packages.
        registry: Everything that the agent can call.
        policy: The policy of the agent.
        identity: Who the agent is.
        key: Gives the key of digests that the journal stores.
        memory: Whether the agent has memory, so that skills are shown entries that fit their request.
        find_tools_above: With more tools than this, a skill is offered a search; None offers it all of them.
    """

    LIMITS = Worker(RUN_SKILL, "A skill.", max_steps=MAX_STEPS)

    def __init__(
        self,
        catalogue: SkillCatalogue,
        registry: Registry,
        policy: Policy,
        identity: str | None,
        key: Callable[[], RoleKey],
        *,
        memory: bool = False,
        find_tools_above: int | None = None,
    ) -> None:
        self._search = ToolSearch(find_tools_above, registry.has_source)
        self.catalogue, self.key = catalogue, key
        self._registry, self._policy, self._identity = registry, policy, identity
        self._memory = memory
        self.signature = skill_signature(identity, memory=memory)
        self._composed = lru_cache(maxsize=64)(self._compose)

    def shape(self) -> Shape[SkillParams, SkillResult]:
        """The shape to register. Its description lists the skills that a model can choose, and is all that it sees."""
        chosen = [each for each in self.catalogue.usable if "models" in each.started_by]
        if inexact := [repr(each.name) for each in self.catalogue.usable if each.warnings]:
            _LOG.warning(
                "not all that the SKILL.md of these skills says is used: %s; `worldagent skills check FOLDER` has the "
                "lines",
                ", ".join(inexact),
            )
        listed = "\n".join(f"- {each.name}: {' '.join(each.description.split())}" for each in chosen)
        about = f"Run a skill: instructions and files for one kind of work. The skills are:\n{listed}"
        return _SkillShape(
            SKILL, SkillParams, SkillResult, self.handle, description=about, offered=bool(chosen), skills=self
        )

    def load(self, name: str, registry: Registry | None = None) -> ReadySkill:
        """Compose a skill of its package as it is now.

        Args:
            name: The skill.
            registry: What its turn can call; None is what every turn can.

        Raises:
            UnknownSkill: No skill has this name.
            ParamsInvalid: Its package cannot be used, or a file with a schema is invalid.
        """
        names = [each.name for each in self.catalogue.usable]
        if name not in names:
            raise UnknownSkill(
                f"there is no skill {name[:100]!r}",
                remedy=f"{self.catalogue.meant(name)}the skills are: {', '.join(names)}",
            )
        try:
            package = self.catalogue.load(name)
            registry = registry or self._registry
            return self._composed(_ByVersion(package.folder, package.version, package), registry, registry.version)
        except SkillInvalid as error:
            problem, remedy = error.problem, error.remedy
        raise ParamsInvalid(problem, remedy=remedy)

    def inputs(self, params: SkillParams, composed: ReadySkill) -> Mapping[str, Any]:
        """The input of a skill, as JSON.

        Raises:
            ParamsInvalid: It is not what the package declares; the text names the field.
        """
        function, takes_text = composed.worker.function, composed.worker.params is WorkerRequest
        if (params.request if takes_text else params.input) is None or (params.request and params.input):
            wanted, other = ("request", "input") if takes_text else ("input", "request")
            raise ParamsInvalid(f"the skill {params.name!r} takes `{wanted}`", remedy=f"pass it, and omit `{other}`")
        return inputs_of(function, params.request if params.request is not None else canonical_json(params.input))

    def _compose(self, key: _ByVersion, registry: Registry, _: int) -> ReadySkill:
        package = key.package
        offered = {
            each.name: each
            for each in registry.offered.values()
            if each.name != SKILL and self._policy.could_allow(each.name, each.risk, RUN_SKILL)
        }
        allowed = allowed_tools(package.header.allowed_tools, offered, package.header.disallowed_tools)
        if allowed.unknown:
            _LOG.warning(
                "the skill %r names tools that the agent does not have: %s", package.name, ", ".join(allowed.unknown)
            )
        functions = [each for name, each in sorted(offered.items()) if allowed.allows(name)]
        functions += _own(package, scripts=package.scripts and SHELL in offered and allowed.allows(SHELL))
        fields, reply = _schema(package, INPUT), _schema(package, OUTPUT)
        worker = replace(
            self.LIMITS,
            tools=tuple(each.name for each in functions),
            input=WorkerRequest if fields is None else fields,
            output=str if reply is None else reply,
        )
        return ReadySkill(
            package=package,
            worker=worker,
            tools=replace(Tools.of_worker(worker, functions, search=self._search), signature=self._signature(worker)),
            allowed=allowed,
            prompt=_prompt(package),
        )

    def _signature(self, worker: Worker) -> Signature:
        own, takes_text = worker.function, worker.params is WorkerRequest
        gives = own.output_schema
        if takes_text and gives.get("type") == "string":  # then no schema declares a role
            return self.signature
        return skill_signature(
            self._identity,
            fields=None if takes_text else own.input_schema.get("properties", {}),
            output=None if gives.get("type") == "string" else gives,
            memory=self._memory,
            about_role=worker.about_role,
        )

    def begin(self, params: SkillParams, ctx: TaskContext) -> tuple[WorkerLoop, Worker, Callable[[Any], Any]]:
        composed = self.load(params.name, ctx.calls.registry)
        worker = composed.worker
        ctx.calls.frame.mark_model_influenced()
        caller = ctx.calls.caller.calling(RUN_SKILL).with_model_influence(model_influenced=True)
        calls = replace(ctx.calls, caller=caller, tools=worker.tools)
        turn = replace(ctx.turn, prompt=composed.prompt)
        run = _SkillLoop(turn, calls, composed, inputs=self.inputs(params, composed))
        return run, worker, lambda reply: SkillResult(skill=params.name, reply=reply)


@dataclass(frozen=True, slots=True)
class _ByVersion:
    """A package that equals another one of the same folder and version."""

    folder: Path
    version: str
    package: SkillPackage = field(compare=False)


class _SkillLoop(WorkerLoop):
    """One run of a skill. A command that its package does not allow is refused before a person is asked."""

    def __init__(self, turn: Any, calls: Any, composed: ReadySkill, *, inputs: Mapping[str, Any]) -> None:
        super().__init__(turn, calls, composed.tools, worker=composed.worker, inputs=inputs)
        self._composed = composed

    async def _called(self, call: Mapping[str, Any], call_id: str) -> Any:
        name, given, allowed = call["tool"], call["arguments"], self._composed.allowed
        texts: Sequence[str] = ()
        if name == SHELL:
            texts = (str(given.get("command", "")),)
        elif name == RUN_SCRIPT:
            texts = _commands(str(given.get("script", "")), list(given.get("arguments") or ()))
        if texts and not any(map(allowed.allows_command, texts)):
            commands = ", ".join(allowed.commands or ())
            refused = ToolNotAllowed(
                f"the skill {self._composed.package.name!r} allows only these commands: {commands or 'none'}",
                remedy="run one of them, or answer without",
            )
            await self._keep(call, call_id, refused)
            return {"code": refused.code, "problem": refused.problem}
        return await super()._called(call, call_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SkillShape(Shape[SkillParams, SkillResult]):
    """The shape of all skills. Its tasks are compared by the version of their package, and a digest of its text.

    The digest is keyed, so that who can write the database alone cannot make a turn resume with another text.
    """

    TAKES_TURN_ROLE: ClassVar = True

    skills: SkillComposer

    @property
    def subgraph(self) -> Any:
        return composer_graph()

    def all_signatures(self) -> tuple[Signature, ...]:
        return (self.skills.signature,)

    @property
    def own_functions(self) -> Mapping[str, Function]:
        return _OWN

    def entry_for(self, params: SkillParams) -> tuple[Signature | None, tuple[Signature, ...]]:
        return self.skills.signature, ()

    def version_of(self, params: SkillParams) -> str:
        package = self.skills.load(params.name).package
        return f"{self.declared} {params.name} {package.version} {self.skills.key().digest_of(package.instructions)}"

    def check_version(self, recorded: str | None) -> bool:
        declared, name, version, digest = (recorded or "   ").split(" ")
        if not same_declaration(declared, self.declared):
            return False
        try:
            package = self.skills.load(name).package
        except (ParamsInvalid, UnknownSkill) as error:
            problem = error.problem
        else:
            if self._is_same(package, version, digest):
                return True
            problem = f"the skill {name!r} has changed since the turn began"
        raise GraphChanged(problem, remedy="restore its package as it was, or cancel the turn and begin a new one")

    def _is_same(self, package: SkillPackage, version: str, digest: str) -> bool:
        key = self.skills.key()
        if key.made(digest) and key.named(key.maker(digest)).digest_of(package.instructions) != digest:
            return False
        return package.version == version

    def check_starter(self, params: SkillParams, *, by_model: bool) -> None:
        name = params.name
        started_by = self.skills.load(name).package.header.started_by
        if by_model and "models" not in started_by:
            raise ParamsInvalid(
                f"the skill {name!r} is started by people only", remedy="tell the person to run it, or go on without it"
            )
        if not by_model and "people" not in started_by:
            raise ParamsInvalid(
                f"the skill {name!r} is not for people to start: its SKILL.md says `user-invocable: false`",
                remedy="ask for the work in a conversation, which chooses the skill, or remove the key",
            )

    def check_params(self, data: object) -> SkillParams:
        return self._checked(Shape.check_params(self, data))

    def read_params(self, data: Any) -> SkillParams:
        return self._checked(Shape.read_params(self, data))

    def _checked(self, params: SkillParams) -> SkillParams:
        self.skills.inputs(params, self.skills.load(params.name))
        return params


# --- packages ---------------------------------------------------------------------------------------------------------


def _prompt(package: SkillPackage) -> str:
    """The text of a package for the instructions, with the names of its files."""
    schemas = {package.header.metadata.get(key) for key in (INPUT, OUTPUT)}
    files = [path for path in package.files if path not in schemas]
    listed = "\n".join(f"- {path}" for path in files[:200])
    more = f"\n\nThe files of the skill, for `{READ_FILE}`:\n{listed}" if files else ""
    return f'<skill name="{package.name}">\n{package.instructions}{more}\n</skill>'


def _schema(package: SkillPackage, key: str) -> Mapping[str, Any] | None:
    """The JSON Schema in the file that the package's metadata names; None if they name none.

    Raises:
        SkillInvalid: There is no such file, or it is not a JSON object.
    """
    path = package.header.metadata.get(key)
    if path is None:
        return None
    try:
        schema = json.loads(package.read(path))
    except ValueError:
        schema = None
    if isinstance(schema, dict):
        return schema
    raise SkillInvalid(f"{package.folder / path} must be a JSON object", remedy="write a JSON Schema into it")


def _own(package: SkillPackage, *, scripts: bool) -> Sequence[Function]:
    """The tools that only this skill has."""
    found = [_read_skill_file(package)] if package.files else []
    if scripts and any(path.startswith("scripts/") for path in package.files):
        found.append(_run_skill_script(package))
    return found


def _read_skill_file(package: SkillPackage) -> Function:
    @tool(name=READ_FILE, risk="read_only", idempotent=True, description="Read one of the files of this skill.")
    def read_skill_file(
        path: Annotated[str, Field(description="its path, as the skill lists it", min_length=1)],
        start: Annotated[int, Field(description="the character to begin at", ge=0)] = 0,
    ) -> str:
        try:
            text = package.read(path).decode("utf-8")
        except (SkillInvalid, UnicodeDecodeError) as error:
            problem = error.problem if isinstance(error, SkillInvalid) else f"{path!r} is not a text"
        else:
            part = text[start : start + MAX_READ]
            more = len(text) - start - len(part)
            return f"{part}\n[{more} characters follow, from {start + len(part)}]" if more > 0 else part
        raise ToolFailed(problem, remedy="read a text file that the skill lists")

    return read_skill_file


def _run_skill_script(package: SkillPackage) -> Function:
    @tool(
        name=RUN_SCRIPT,
        risk=("write", "network", "destructive"),
        untrusted=True,
        description="Run a script of this skill in a copy of the skill's folder. Pass absolute paths of other files.",
    )
    async def run_skill_script(
        script: Annotated[str, Field(description="its path, such as scripts/fill.py", min_length=1)],
        arguments: Annotated[list[str], Field(description="its arguments")] = [],  # noqa: B006 -- never changed
    ) -> ShellResult:
        if script not in package.files or not script.startswith("scripts/"):
            raise ToolFailed(f"the skill has no script {script[:200]!r}", remedy="run one of its files in scripts/")
        with tempfile.TemporaryDirectory(prefix="worldagent-skill-") as parent:
            folder = Path(parent) / package.name
            shutil.copytree(package.folder, folder)  # what a script writes beside itself never changes the package
            command = _command(folder, script, arguments)
            return await run_command(command, folder, seconds=_SCRIPT_SECONDS, limit=_SCRIPT_OUTPUT)

    return run_skill_script


def _command(folder: Path, script: str, arguments: Sequence[str]) -> str:
    interpreter = _INTERPRETERS.get(Path(script).suffix)
    if interpreter is None and not (folder / script).stat().st_mode & 0o100:
        raise ToolFailed(
            f"{script!r} is neither executable nor a .py or .sh file", remedy="run another script, or tell the user"
        )
    return " ".join([*filter(None, [interpreter]), shlex.quote(f"./{script}"), *map(shlex.quote, arguments)])


def _commands(script: str, arguments: Sequence[str]) -> Sequence[str]:
    """The ways in which a package can name the command of a script in its `allowed-tools`."""
    rest = " ".join(map(shlex.quote, [script, *arguments]))
    return (rest, f"./{rest}", *(f"{program} {rest}" for program in ("python", "python3", "bash", "sh")))


_NO_PACKAGE: Final = SkillPackage(
    header=SkillHeader(name="", description="", file=Path()), instructions="", files=(), version=""
)
_OWN: Final = {each.name: each for each in (_read_skill_file(_NO_PACKAGE), _run_skill_script(_NO_PACKAGE))}
"""The tools that only skills have, as every package declares them."""
