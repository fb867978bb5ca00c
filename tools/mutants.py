"""Make small mistakes in the core and in the scripts, one at a time; the tests must find each of them.

    python tools/mutants.py [--count 50] [--seed 1] [--only TEXT] [--near]

The mistakes in Python are cosmic-ray's, those in Lua come from the table below. Which are made follows from the seed.
A mutant lives in a copy of the sources. What proves it wrong: first the tests that name what was changed, then all of
its floor. Prints a line for each mutant, the change of those that no test found, and a count; exit status 1 if there
is one.
"""

import argparse
import ast
import difflib
import importlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
COPIED = ("reliq", "monitor", "api", "tests", "tools", "docs", "pyproject.toml", "README.md", "CONTRIBUTING.md")
FEATURES = "reliq/features/"
PYTHON = (
    "reliq/protocol/*.py", "reliq/model/*.py", "reliq/ops/*.py",
    *(f"{FEATURES}*/{one}.py" for one in ("model", "ops", "steps")),
)  # fmt: skip
LUA = ("reliq/lua/*.lua", "reliq/lua/shared/*.lua", f"{FEATURES}*/lua/*.lua", f"{FEATURES}*/lua/shared/*.lua")
_NAMED_MOST = 6  #: test files of the first step
_LONG = {"test_conservation.py", "test_decisions.py", "test_generate_sync.py", "test_recipes.py", "test_documents.py"}
_TIMEOUT = 900  #: seconds of one step; a mutant that makes the tests hang is found

#: Mistakes in Lua: a pattern, and what takes its place.
LUA_OPERATORS = (
    (r" == ", " ~= "),
    (r" ~= ", " == "),
    (r" < ", " <= "),
    (r" <= ", " < "),
    (r" > ", " >= "),
    (r" >= ", " > "),
    (r" and ", " or "),
    (r" or ", " and "),
    (r"\bnot ", ""),
    (r"\btrue\b", "false"),
    (r"\bfalse\b", "true"),
    (r" \+ 1\b", ""),
    (r" - 1\b", ""),
    (r"'LPUSH'", "'RPUSH'"),
    (r"'RPUSH'", "'LPUSH'"),
    (r"(?m)^\s*redis\.call\([^()]*\)$", ""),
)
#: Mistakes in Python: the operators of cosmic-ray that change what is computed, not how it is written.
PYTHON_OPERATORS = re.compile(
    r"core/(AddNot|NumberReplacer|ReplaceAndWithOr|ReplaceOrWithAnd|ReplaceTrueWithFalse|ReplaceFalseWithTrue"
    r"|ReplaceUnaryOperator_Delete_Not|ReplaceBinaryOperator_(Add_Sub|Sub_Add)"
    r"|ReplaceComparisonOperator_(Eq_NotEq|NotEq_Eq|Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Is_IsNot|IsNot_Is))"
)


@dataclass(frozen=True)
class Mutant:
    """One mistake in one file: its place among all that can be made there, and the whole text with it."""

    file: str
    what: str
    text: str

    def change(self) -> str:
        before = (ROOT / self.file).read_text().splitlines()
        lines = difflib.unified_diff(before, self.text.splitlines(), lineterm="", n=0)
        return "\n".join(line for line in lines if line[0] in "+-@" and not line.startswith(("---", "+++")))

    def proofs(self) -> list[list[str]]:
        """Return the arguments of pytest, step by step."""
        if self.file.endswith(".lua"):
            path = Path(self.file)
            word = path.parents[2].name if path.stem == "moments" else path.stem
            return [_naming(word, "tests/scripts"), ["tests/scripts"]]
        module = Path(self.file).parent.name if self.file.startswith(FEATURES) else Path(self.file).stem
        every = ["tests/unit", "tests/scripts", "tests/integration/client", "tests/integration/worker"]
        return [_naming(module, "tests/unit", "tests/scripts"), every]


def _naming(word: str, *folders: str) -> list[str]:
    """Return the test files that say this word most often, those first that have it in their name."""
    files = [path for folder in folders for path in sorted((ROOT / folder).glob("test_*.py"))]
    counted = [
        (word in path.stem, len(re.findall(rf"\b{word}\b", path.read_text())), str(path.relative_to(ROOT)))
        for path in files
        if path.name not in _LONG
    ]
    return [file for named, count, file in sorted(counted, reverse=True)[:_NAMED_MOST] if named or count]


def lua_mutants(file: str) -> Iterator[Mutant]:
    text = (ROOT / file).read_text()
    for pattern, replacement in LUA_OPERATORS:
        for place, found in enumerate(re.finditer(pattern, text)):
            line = text[text.rfind("\n", 0, found.start()) + 1 : found.end()]
            if "--" not in line:
                changed = text[: found.start()] + replacement + text[found.end() :]
                yield Mutant(file, f"{found[0].strip()!r} {place}", changed)


def python_mutants(file: str) -> Iterator[Mutant]:
    mutating: Any = importlib.import_module("cosmic_ray.mutating")
    plugins: Any = importlib.import_module("cosmic_ray.plugins")
    text = (ROOT / file).read_text()
    for name in sorted(filter(PYTHON_OPERATORS.fullmatch, plugins.operator_names())):
        place = 0
        while (changed := mutating.mutate_code(text, plugins.get_operator(name)(), place)) is not None:
            if ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text)) and not _declares(text, changed):
                yield Mutant(file, f"{name.removeprefix('core/')} {place}", changed)
            place += 1


def _declares(text: str, changed: str) -> bool:
    """Whether the change is in how a dataclass is made, such as `slots`: it does what it did."""
    lines = zip(text.splitlines(), changed.splitlines(), strict=False)
    return all(before.lstrip().startswith("@dataclass") for before, after in lines if before != after)


def chosen(count: int, seed: int, only: str) -> Iterator[Mutant]:
    """Choose mutants, as many of Lua as of Python; at most one of a file in turn, so that they are spread."""
    draw = random.Random(seed)
    kinds = [sorted(_files(PYTHON, only)), sorted(_files(LUA, only))]
    for files in kinds:
        draw.shuffle(files)
    made, turn, taken = 0, 0, set[Mutant]()
    while made < count and turn < 20 * count and any(kinds):
        files = kinds[turn % 2] or kinds[1 - turn % 2]
        file = files[turn // 2 % len(files)]
        every = list(lua_mutants(file) if file.endswith(".lua") else python_mutants(file))
        if every and (mutant := draw.choice(every)) not in taken:
            taken.add(mutant)
            yield mutant
            made += 1
        turn += 1


def _files(patterns: tuple[str, ...], only: str) -> list[str]:
    paths = [path for pattern in patterns for path in ROOT.glob(pattern) if path.name != "__init__.py"]
    return [name for name in (str(path.relative_to(ROOT)) for path in paths) if only in name]


def found_by(mutant: Mutant, folder: Path, steps: int) -> str:
    """Return the test of these first steps that fails with the mutant; an empty text if none does."""
    (folder / mutant.file).write_text(mutant.text)
    try:
        for arguments in filter(None, mutant.proofs()[:steps]):
            if found := _failing(arguments, folder):
                return found
        return ""
    finally:
        shutil.copyfile(ROOT / mutant.file, folder / mutant.file)


def _failing(arguments: list[str], folder: Path) -> str:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:schemathesis",
    ]
    command += ["-m", "not slow and not campaign", "--durations", "0", "--durations-min", "1000", *arguments]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return f"{arguments[0]} ... hangs"
    if done.returncode == 0:
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return found[1] if found else f"{arguments[0]} ... cannot begin"


def main() -> int:
    parser = argparse.ArgumentParser(description="Make mistakes; print which of them the tests find.")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", metavar="TEXT", help="files with this text in their path")
    parser.add_argument("--near", action="store_true", help="run only the tests that name what was changed")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    missed, made = list[Mutant](), 0
    with tempfile.TemporaryDirectory(prefix="reliq-mutants-") as name:
        folder = Path(name)
        for part in COPIED:
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copyfile
            copy(ROOT / part, folder / part)
        for mutant in chosen(options.count, options.seed, options.only):
            made += 1
            test = found_by(mutant, folder, 1 if options.near else 2)
            print(f"{made:3} {'found    ' if test else 'NOT FOUND'} {mutant.file}: {mutant.what}  {test}", flush=True)
            if not test:
                missed.append(mutant)
                print(mutant.change(), flush=True)
    print(f"{made} mutants, {made - len(missed)} found, {len(missed)} not found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
