"""Hooks of `make docs`.

Pages link to files that are not in `docs/`, such as the README and the examples. The site gets copies of these files,
and the links lead to the copies. So the same pages work on a forge, in an editor and in a site.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

# A relative link of Markdown, without a scheme and not an anchor of the same page. Links in code do not count.
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\()((?![a-z]+:|#|/)[^)\s#]+)")
CHECKOUT_FOLDER = "checkout"
"""The folder of the site with the copies of files that are not in `docs/`."""


def on_config(config: Any, **_: Any) -> Any:
    """Add the decision records to the navigation, by subject, and copy the package to where the API reference reads it.

    The package and nothing else: the reader of the API follows links, and `.dev/worldagent` leads back to the top of
    the checkout. It would walk through every folder, the environment too, once for each module, which takes minutes.
    """
    root = Path(config["docs_dir"]).parent
    package = root / "build" / "api" / "worldagent"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    for name in project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]:
        source, ignore = root / name, shutil.ignore_patterns("__pycache__")
        if source.is_dir():
            shutil.copytree(source, package / name, ignore=ignore)
        else:
            shutil.copy2(source, package / name)
    [records] = [entry["Decisions"] for entry in config["nav"] if isinstance(entry, dict) and "Decisions" in entry]
    for part in (root / "docs" / "decisions" / "index.md").read_text("utf-8").split("\n## ")[1:]:
        subject, rows = part.split("\n", 1)
        records.append({subject: [f"decisions/{file}" for file in re.findall(r"^\| \[\d+\]\(([^)]+)\)", rows, re.M)]})
    return config


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add every file that a page links to and that is not in `docs/`, and the files that these link to in turn."""
    docs = Path(config["docs_dir"])
    root = docs.parent
    pages = [file.src_uri for file in files.documentation_pages()]
    while pages:
        page = pages.pop()
        text = (docs / page if _in_docs(page) else root / page.removeprefix(f"{CHECKOUT_FOLDER}/")).read_text("utf-8")
        for _, link in _LINK.findall(_CODE.sub("", text)):
            target = _target(page, link)
            source = root / target.removeprefix(f"{CHECKOUT_FOLDER}/")
            if _in_docs(target) or files.get_file_from_path(target) or not source.is_file():
                continue
            level = InclusionLevel.NOT_IN_NAV  # reached by links alone
            files.append(File.generated(config, target, abs_src_path=str(source), inclusion=level))
            pages += [target] if target.endswith(".md") else []
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point the links of a page to where the site has the files."""
    here = page.file.src_uri

    def relocate_link(link: re.Match[str]) -> str:
        target = _target(here, link[2])
        return f"{link[1]}{posixpath.relpath(target, posixpath.dirname(here) or '.')}"

    parts = re.split(rf"({_CODE.pattern})", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if _CODE.fullmatch(part) else _LINK.sub(relocate_link, part) for part in parts)


def on_page_content(html: str, **_: Any) -> str:
    """Remove the backslash of a pipe in a table's code: forges need it, and Python-Markdown shows it."""
    return re.sub(r"<td\b.*?</td>", lambda cell: cell[0].replace("\\|", "|"), html, flags=re.DOTALL)


def _in_docs(uri: str) -> bool:
    return not uri.startswith(f"{CHECKOUT_FOLDER}/")


def _target(page: str, link: str) -> str:
    """Where the site has what a page links to, as a path in the site's sources."""
    place = f"docs/{page}" if _in_docs(page) else page.removeprefix(f"{CHECKOUT_FOLDER}/")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(place), link))
    return target.removeprefix("docs/") if target.startswith("docs/") else f"{CHECKOUT_FOLDER}/{target}"
