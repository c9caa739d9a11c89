"""How large the package is: code lines by folder, without comments, docstrings and blank lines.

`python tests/house/size.py` counts the files of the checkout, `python tests/house/size.py COMMIT` those of a commit.
`tests`, `benchmarks`, `examples` and `docs` are not the product; they are counted apart.
"""

import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
APART: Final = ("tests", "benchmarks", "examples", "docs")
_SILENT: Final = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


def code_lines(text: str) -> int:
    """The lines of a Python text that have code. A string that stands alone is a docstring, wherever it is."""
    said: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            said.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    coded: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _SILENT:
            coded.update(range(token.start[0], token.end[0] + 1))
    return len(coded - said)


def texts(commit: str | None) -> Iterator[tuple[str, str]]:
    """The Python files that git has, with their content now or at a commit."""
    listing = ["ls-files", "*.py"] if commit is None else ["ls-tree", "-r", "--name-only", commit]
    for name in _git(*listing).splitlines():
        if name.endswith(".py"):
            yield name, (ROOT / name).read_text("utf-8") if commit is None else _git("show", f"{commit}:{name}")


def sizes(commit: str | None = None) -> Counter[str]:
    """The code lines of each folder."""
    found: Counter[str] = Counter()
    for name, text in texts(commit):
        found[name.partition("/")[0]] += code_lines(text)
    return found


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    counted = sizes(*sys.argv[1:2])
    own = Counter({name: lines for name, lines in counted.items() if name not in APART})
    rows = [*own.most_common(), ("product", own.total()), *((name, counted[name]) for name in APART)]
    sys.stdout.writelines(f"{name:16} {lines:7,}\n" for name, lines in rows)
