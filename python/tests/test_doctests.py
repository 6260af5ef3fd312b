"""What documentation shows is what happens: examples in docstrings, and the commands and snippets of pages."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import ciphergram as cg
import numpy as np
import pytest

PACKAGE = Path(__file__).parents[1]
README = PACKAGE / "README.md"
PAGES = [README, PACKAGE.parent / "README.md", PACKAGE.parent / "docs" / "files.md"]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """Returns the fenced blocks of a language, each with the line before its first."""
    found: list[tuple[int, str]] = []
    lines: list[str] | None = None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if not line.startswith("```"):
            if lines is not None:
                lines.append(line)
            continue
        if lines is None:
            first, is_wanted, lines = number, line == f"```{language}", []
            continue
        if is_wanted:
            found.append((first, "\n".join(lines) + "\n"))
        lines = None
    return found


def documented() -> list[Any]:
    """Returns the modules and classes of the package whose docstrings may hold examples."""
    public = [getattr(cg, name) for name in cg.__all__]
    public += [getattr(cg.ckks, name) for name in cg.ckks.__all__]
    modules: list[Any] = [cg, cg.errors, cg.ckks]
    return modules + [thing for thing in public if inspect.isclass(thing) or inspect.isroutine(thing)]


@pytest.mark.parametrize("thing", documented(), ids=lambda thing: thing.__name__)
def test_examples_in_docstrings(thing: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"cg": cg, "np": np, "numpy": np}
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    module = None if isinstance(thing, ModuleType) else False
    for test in doctest.DocTestFinder().find(thing, module=module, extraglobs=names):
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def test_everything_public_is_documented() -> None:
    for name in cg.__all__:
        if not name.startswith("_"):
            assert inspect.getdoc(getattr(cg, name)), name
    for thing in documented():
        if inspect.isclass(thing) and thing.__module__ in ("ciphergram", "ciphergram.ckks"):
            for name, member in vars(thing).items():
                if not name.startswith("_"):
                    assert inspect.getdoc(member), f"{thing.__name__}.{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_the_snippets_of_a_page_run_as_typed(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of `python` run one after the other, in one folder, and print what comments behind `print` say."""
    monkeypatch.chdir(tmp_path)
    found = blocks(page, "python")
    assert found
    names: dict[str, Any] = {}
    for line, text in found:
        expected, printed = shown(text), list[str]()
        names["print"] = lambda *words, printed=printed: printed.append(" ".join(map(str, words)))
        exec(compile(text, f"{page.name}:{line}", "exec"), names)
        assert printed == expected, f"{page.name}:{line}"


def shown(text: str) -> list[str]:
    """Returns what comments behind calls of `print` say that these print."""
    lines = [line for line in text.splitlines() if line.startswith("print(")]
    return [line.split("  # ", 1)[1] for line in lines]


def test_the_snippets_about_frameworks_are_python() -> None:
    """Blocks of `py` need a framework: tests with it run such code, here it has to be well formed."""
    found = blocks(README, "py")
    assert found
    for line, text in found:
        compile(text, f"{README.name}:{line}", "exec")


@pytest.mark.parametrize("made", [cg.Client, cg.Job, cg.Server, cg.Summing])
def test_what_a_class_is_made_of_is_where_help_looks(made: type) -> None:
    text = inspect.getdoc(made) or ""
    for name in inspect.signature(made).parameters:
        assert f"{name}:" in text or f"{name}," in text, name
