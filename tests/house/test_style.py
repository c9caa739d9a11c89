"""Style rules that ruff cannot check, held over every shipped folder."""

import ast
import re

from support.house import ROOT, shipped_modules
from support.pages import pages

FUNCTION_LINES = 80
# "is no file" for "is not a file". "There is no file", and "is no longer", are English as people write it.
_NO_SUCH = re.compile(r"(?<!there )(?<!There )\b(?:is|are|was|were) no (?!longer|more|other|later|less|one\b)[a-z]\w*")


def foreign_statements(source: str) -> list[str]:
    """Give what in a folder's `__init__.py` is neither docstring, import nor `__all__`.

    A front that loads names at their first use may also hold `__getattr__`, which `core.lazy` makes or which reads a
    private table, and `__dir__`.
    """
    body = ast.parse(source).body
    late = "def __getattr__(" in source or "__getattr__ = lazy(" in source

    def belongs(node: ast.stmt) -> bool:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                return True
            case ast.Assign(targets=[ast.Name(id="__getattr__")], value=ast.Call(func=ast.Name(id="lazy"))):
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


def test_no_function_is_too_long() -> None:
    for path in shipped_modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                assert length <= FUNCTION_LINES, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: split it"


def test_a_folder_only_re_exports() -> None:
    for path in shipped_modules():
        if path.name == "__init__.py" and path.parent != ROOT:
            source = path.read_text(encoding="utf-8")
            assert ast.get_docstring(ast.parse(source)), f"{path.relative_to(ROOT)} does not say what the folder is"
            assert foreign_statements(source) == [], path.relative_to(ROOT)


def test_something_is_not_another_thing_rather_than_no_such_thing() -> None:
    for path in (*shipped_modules(), *pages()):
        found = _NO_SUCH.findall(path.read_text(encoding="utf-8"))
        assert found == [], path.relative_to(ROOT)
