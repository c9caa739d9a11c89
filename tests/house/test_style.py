"""The limits that keep code readable, held over every shipped folder. Ruff holds what it can; this is the rest."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from support.house import ROOT, shipped_modules

FUNCTION_LINES, MODULE_LINES, PUBLIC_NAMES, PARAMETERS = 80, 500, 12, 6

# Modules that may name more than `PUBLIC_NAMES`, and why.
MANY_NAMES = {
    "core/errors/__init__.py": "one class an error; the list is the table that a reader looks for",
    "core/errors/_host.py": "one class an error; the list is the table that a reader looks for",
    "core/errors/_model.py": "one class an error; the list is the table that a reader looks for",
    "core/errors/_usage.py": "one class an error; the list is the table that a reader looks for",
    "core/events.py": "one class a kind of event; hosts handle the union as a whole",
}
# Functions that may take more than `PARAMETERS`, and why.
MANY_PARAMETERS = {
    "WorldAgent.__init__": "the front door: one keyword for each part that an embedder can exchange",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, Function]]:
    """Yield every function below `tree` with its qualified name."""
    for node in ast.iter_child_nodes(tree):
        name = f"{inside}{node.name}" if isinstance(node, Function | ast.ClassDef) else inside.rstrip(".")
        if isinstance(node, Function):
            yield name, node
        yield from functions(node, f"{name}." if name else "")


def parameters(function: Function) -> int:
    given = function.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def public_names(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


def complaints(source: str, where: str) -> list[str]:
    """Say what in the module `source`, known as `where`, is over a limit."""
    tree = ast.parse(source)
    found: list[str] = []
    lines = len(source.splitlines())
    if lines > MODULE_LINES:
        found.append(f"{where} has {lines} lines, more than {MODULE_LINES}: split it")
    names = len(public_names(tree))
    if names > PUBLIC_NAMES and where not in MANY_NAMES:
        found.append(f"{where} names {names} things in __all__, more than {PUBLIC_NAMES}: hide some, or split it")
    for name, function in functions(tree):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > FUNCTION_LINES:
            found.append(f"{where}:{function.lineno} {name} has {length} lines, more than {FUNCTION_LINES}: split it")
        taken = parameters(function)
        if taken > PARAMETERS and name not in MANY_PARAMETERS:
            found.append(
                f"{where}:{function.lineno} {name} takes {taken} parameters, more than {PARAMETERS}: group them"
            )
    return found


def foreign_statements(source: str) -> list[str]:
    """Give what in a folder's `__init__.py` is neither docstring, import nor `__all__`.

    A front that loads names at their first use may also hold `__getattr__`, `__dir__` and the private table they read.
    """
    body = ast.parse(source).body
    late = any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in body)

    def belongs(node: ast.stmt) -> bool:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                return True
            case ast.Assign(targets=[ast.Name(id=name)]):
                return name == "__all__" or (late and name.startswith("_") and name.isupper())
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                return late and all(belongs(inner) for inner in node.body)
            case ast.FunctionDef(name=name):
                return name in ("__getattr__", "__dir__")
            case _:
                return False

    return [ast.unparse(node).splitlines()[0] for node in body if not belongs(node)]


def test_no_module_is_over_a_limit() -> None:
    found = [
        complaint
        for path in shipped_modules()
        for complaint in complaints(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())
    ]
    assert not found, "\n".join(found)


def test_a_folder_only_re_exports() -> None:
    for path in shipped_modules():
        if path.name == "__init__.py" and path.parent != ROOT:
            source = path.read_text(encoding="utf-8")
            assert ast.get_docstring(ast.parse(source)), f"{path.relative_to(ROOT)} does not say what the folder is"
            assert foreign_statements(source) == [], path.relative_to(ROOT)


def test_the_package_imports_itself_relatively() -> None:
    for path in shipped_modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            absolute = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            absolute += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in absolute if name.split(".")[0] == "worldagent"], path.relative_to(ROOT)


def test_no_module_is_called_utils() -> None:
    assert not [path for path in shipped_modules() if path.stem.strip("_") in ("util", "utils", "helpers", "misc")]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("x = 1\n" * 501, "has 501 lines"),
        ("class A:\n    def f(self):\n" + "        x = 1\n" * 80, "A.f has 81 lines"),
        ("async def f(a, b, /, c, *, d, e, f, g): ...", "f takes 7 parameters"),
        (f"__all__ = {[f'n{n}' for n in range(13)]}", "names 13 things"),
    ],
)
def test_what_is_over_a_limit_is_named(source: str, complaint: str) -> None:
    [found] = complaints(source, "core/x.py")
    assert complaint in found


@pytest.mark.parametrize(
    ("source", "foreign"),
    [
        ('"""Doc."""\nfrom ._x import y\n__all__ = ["y"]\n', []),
        ("if TYPE_CHECKING:\n    from ._x import y\n_HOMES = {}\ndef __getattr__(name): ...\n", []),
        ("_STATE = {}\nfrom ._x import y\n", ["_STATE = {}"]),
        ("state = []\ndef __getattr__(name): ...\n", ["state = []"]),
        ("def start(): ...\n", ["def start():"]),
    ],
)
def test_code_in_a_folders_front_is_noticed(source: str, foreign: list[str]) -> None:
    assert foreign_statements(source) == foreign
