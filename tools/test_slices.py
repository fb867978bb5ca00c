"""Delete one slice after another, each in a copy of the tree, and run the tests of the core there.

    python tools/test_slices.py                           # every folder of reliq/features
    python tools/test_slices.py schedules --tests tests/scripts tests/unit

In the copy the folder is deleted, and mechanically its entries: the lines that import from it, and the names so
imported where they stand in a list, among the bases of a class, or in `__all__`. What stands on the slice goes with
it, in the same way. What is generated is written anew,
every module is imported, and the tests that do not use the slice run against a real Redis. A core that names the slice
in any other way fails here. docs/decisions/0014-slices.md says what a slice is.
"""

import argparse
import ast
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FEATURES = Path("reliq/features")
PRODUCT = ("reliq", "api", "monitor/reliq_monitor")
#: The marks of `make test` and `make test-heavy`.
SHORT = re.findall(r"^SHORT := (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[0]
TESTS = ("tests/unit", "tests/scripts", "tests/integration/client", "tests/integration/worker")
#: How a test shows that it uses a slice, beside importing from it.
MARKS = {
    "batches": r"\.batch(es)?\(|batch_progress|[Bb]atchSteps|on_done|on_dead=|on_handled|onHandled|of_batch|\bbatch=|"
    r"\bbatch_(of|counts)|end_batches|BATCHES|reliq batch|\"batch\"|/batches",
    "charges": r"\.charge\(|/charge\b|\"charge\"",
    "cycle": r"\bcycl|\.Cycle\b",
    "flows": r"\.flows?\(|flow_progress|cancel_flow|\bFlow|FLOWS|\bflowing\b|tell_flows|\"predecessor",
    "output": r"\.(emit|output)\(|\"emit\"|\bOutput\b|/output\b|emitted",
    "prepared": r"\.prepared?\b|[Pp]repared|PREPARED|ask_undecided|\.check\(",
    "receipts": r"\breceipts?\b|\.receive\(|in flight|delete_received|[Ss][Qq][Ss]\b|reliq_sqs",
    "results": r"\.result\(|/result\b|NoResult|HandlerFailed|\bno_result\b",
    "steps": r"\.(step|sleep|wait|signal|parked)\(\"|[Pp]arked|durable|\bRunOver\b|StepFailed|Signal(Refused|Timeout)",
    "tracking": r"\.(find|search|cancel|cancel_many)\(|[Cc]ancell?|\btrack|history|/find\b|message\?id|message find|"
    r"Found\b",
    "staging": r"[Ss]tag(e|ed|ing)\b|[Ss]park|finish_staged|\bjobs\b",
    "schedules": r"schedul|\.every\(|send_ticks|due_tick",
    "topics": r"\btopics?\b|TOPICS|publish|broadcast|subscribe|unroutable|Unroutable|\.bind\(|[Kk]ombu|[Cc]elery|"
    r"routing_key",
}
#: What stands on a slice, and is deleted with it: its folder, or the file, and how it is imported.
STANDING_ON = {
    "receipts": {"api/reliq_sqs": "reliq_sqs", "reliq/cli/sqs.py": "reliq.cli.sqs"},
    "topics": {
        "reliq/contrib/kombu": "reliq.contrib.kombu",
        "reliq/contrib/celery.py": "reliq.contrib.celery",
        "reliq/contrib/celery_ends.py": "reliq.contrib.celery_ends",
    },
}
#: Tests of pages, tools and copies of the whole tree, or of a whole table: these describe the slices too.
OF_THE_TREE = {
    "test_documents.py", "test_reference.py", "test_recipes.py", "test_runbooks.py", "test_type_checkers.py",
    "test_slices.py", "test_named_commands.py", "test_every_code_is_in_the_document_or_beyond_any_call",
    "test_every_metric_is_documented_and_every_documented_one_exists",
}  # fmt: skip
_IMPORT_ALL = """
import importlib, pkgutil
for name in ("reliq", "reliq_api", "reliq_monitor", "reliq_sqs"):
    try:
        package = importlib.import_module(name)
    except ModuleNotFoundError:
        continue
    for one in pkgutil.walk_packages(package.__path__, package.__name__ + ".", onerror=lambda name: None):
        if one.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(one.name)
        except BaseException as error:
            print(f"{one.name}: {type(error).__name__}: {error}".splitlines()[0])
"""


class Named(Exception):
    """The core names the slice in a way that is no entry."""


def slices() -> list[str]:
    """Return the names of the slices that exist."""
    return sorted(path.parent.name for path in (ROOT / FEATURES).glob("*/__init__.py"))


# --- delete a slice ---


def without_entries(source: str, slice_: str) -> str:
    """Return a source without its entries of a slice. Raises Named if it uses the slice otherwise."""
    tree = ast.parse(source)
    imports = {node: _going(node, slice_) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names = {one.asname or one.name for going in imports.values() for one in going}
    if not names:
        return source
    starts = _line_starts(source)
    edits: list[tuple[int, int, str]] = []
    for statement, going in imports.items():
        rest = [one for one in statement.names if one not in going]
        text = ast.unparse(ast.ImportFrom(statement.module, rest, statement.level)) + "\n" if rest else ""
        if going:
            lines = starts[statement.lineno - 1], starts[statement.end_lineno or statement.lineno]
            edits.append((*lines, " " * statement.col_offset * bool(rest) + text))
    edits += [(*_span(source, starts, one), "") for one in _elements(tree) if _root(one) in names]
    edits += [(end, end, ",") for end in _ends_of_singles(source, starts, tree, names)]
    for begin, end, text in sorted(edits, reverse=True):
        source = source[:begin] + text + source[end:]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and node.id in names:
            raise Named(f"it uses {node.id}: {source.splitlines()[node.lineno - 1].strip()}")
    return source


def _going(node: ast.ImportFrom, slice_: str) -> list[ast.alias]:
    """Return the names of an import that go with a slice: all of its modules, or some modules of a package."""
    if _goes(node.module, slice_):
        return node.names
    return [one for one in node.names if _goes(f"{node.module}.{one.name}", slice_)]


def _goes(module: str | None, slice_: str) -> bool:
    """Whether a module goes with a slice."""
    going = (f"reliq.features.{slice_}", *STANDING_ON.get(slice_, {}).values())
    return any(f"{module}.".startswith(f"{one}.") for one in going)


def _elements(tree: ast.Module) -> Iterator[ast.expr]:
    """Return what stands in lists and tuples, and the bases of classes."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Tuple, ast.List)) and isinstance(node.ctx, ast.Load):
            yield from node.elts
        elif isinstance(node, ast.ClassDef):
            yield from node.bases


def _ends_of_singles(source: str, starts: list[int], tree: ast.Module, names: set[str]) -> Iterator[int]:
    """Return where a comma is missing: behind the only element that is left of a tuple."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load):
            left = [one for one in node.elts if _root(one) not in names]
            if len(left) == 1 < len(node.elts) and left[0] is node.elts[-1]:
                _, end = _span(source, starts, left[0])
                if source[end - 1] not in ", ":
                    yield end


def _root(node: ast.expr) -> str:
    """Return the name that an element begins with; of `__all__` it is the text."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    match node:
        case ast.Name(id=name):
            return name
        case ast.Constant(value=str(text)):
            return text
    return ""


def _line_starts(source: str) -> list[int]:
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _span(source: str, starts: list[int], node: ast.expr) -> tuple[int, int]:
    """Return where an element begins, and where it ends with its comma."""
    begin = starts[node.lineno - 1] + node.col_offset
    end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
    comma = re.match(r"\s*,[ ]?", source[end:])
    return begin, end + (comma.end() if comma else 0)


def delete(root: Path, slice_: str) -> int:
    """Delete a slice and its entries; return how many files had one. Raises Named with the file that is at fault."""
    shutil.rmtree(root / "tests/features" / slice_, ignore_errors=True)
    for name in (FEATURES / slice_, *map(Path, STANDING_ON.get(slice_, {}))):
        shutil.rmtree(root / name) if (root / name).is_dir() else (root / name).unlink()
    for place, module in STANDING_ON.get(slice_, {}).items():
        if "." not in module:  # an installed one would be found
            missing = f"No module named {module!r}"
            (root / place).with_suffix(".py").write_text(f"raise ModuleNotFoundError({missing!r}, name={module!r})\n")
    entered = 0
    for path in _sources(root, PRODUCT):
        source = path.read_text(encoding="utf-8")
        try:
            rest = without_entries(source, slice_)
        except Named as error:
            raise Named(f"{path.relative_to(root)}: {error}") from None
        if rest != source:
            path.write_text(rest, encoding="utf-8")
            entered += 1
        if f"features.{slice_}" in rest or f"features/{slice_}" in rest:
            raise Named(f"{path.relative_to(root)} names the folder of {slice_}")
    return entered


def _sources(root: Path, folders: Sequence[str]) -> list[Path]:
    return [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]


# --- choose the tests of the core ---


def core_tests(root: Path, slice_: str, folders: Sequence[str]) -> tuple[list[str], list[str], int]:
    """Return the files with tests of the core, the tests in them that use the slice, and how many files are left out.

    A file is left out if it imports from the slice, or from a file that is left out. In others those tests are left
    out that have a mark of the slice, themselves or in a function that they use.
    """
    mark = re.compile(MARKS[slice_])
    paths = [path for path in _sources(root, folders) if path.name.startswith("test_")]
    files, tests = [], []
    for path in paths:
        using = None if path.name in OF_THE_TREE else left_out_of(path.read_text(encoding="utf-8"), mark, slice_)
        if using is not None:
            files.append(path.relative_to(root).as_posix())
            tests += [f"{files[-1]}::{name}" for name in using]
    return files, tests, len(paths) - len(files)


def left_out_of(source: str, mark: re.Pattern[str], slice_: str) -> list[str] | None:
    """Return the names of the tests that use a slice; None if the file does as a whole."""
    texts: dict[str, str] = {}
    for module, name, text in _parts(source):
        if name:
            texts[name] = text
        elif _goes(module, slice_) or f"features.{slice_}" in text or mark.search(text):
            return None
    found = {name for name, text in texts.items() if name in OF_THE_TREE or mark.search(text)}
    while found and (more := {name for name in texts if name not in found and _names_one_of(found, texts[name])}):
        found |= more
    return sorted(name for name in found if name.startswith(("test_", "Test")))


@functools.cache
def _parts(source: str) -> list[tuple[str, str, str]]:
    """Return the imports, with their module, and the named parts of a file, with their name; and the text of each."""
    lines, found = source.splitlines(), list[tuple[str, str, str]]()
    for node in ast.parse(source).body:
        text = "\n".join(lines[_first_line(node) - 1 : node.end_lineno])
        match node:
            case ast.Import() | ast.ImportFrom():
                found.append((getattr(node, "module", None) or "", "", text))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.append(("", name, text))
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found.append(("", name, text))
    return found


def _names_one_of(names: set[str], text: str) -> bool:
    return re.search(rf"\b(?:{'|'.join(map(re.escape, names))})\b", text) is not None


def _first_line(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    first: int = min([node.lineno, *(one.lineno for one in decorators)])
    return first


# --- try it ---


def copied(target: Path) -> None:
    """Copy what belongs to the repository, committed or not."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)


def _run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(str(root / one) for one in ("", "api", "monitor"))
    environment = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


def try_without(slice_: str, folders: Sequence[str]) -> str:
    """Delete a slice in a copy, and return what the table says of it; raises Named, or RuntimeError if a step fails."""
    with tempfile.TemporaryDirectory(prefix=f"without-{slice_}-") as folder:
        root = Path(folder)
        copied(root)
        entered = delete(root, slice_)
        for tool in ("generate_scripts", "generate_sync"):
            _check(_run(root, f"tools/{tool}.py"), tool)
        _check(_run(root, "-m", "ruff", "check", "--quiet", "--select", "F821,F401", *PRODUCT), "names")
        missing = set(_run(root, "-c", _IMPORT_ALL).stdout.splitlines()) - set(
            _run(ROOT, "-c", _IMPORT_ALL).stdout.splitlines()
        )
        if missing:
            raise RuntimeError("cannot be imported any more:\n" + "\n".join(sorted(missing)))
        files, using, left_out = core_tests(root, slice_, folders)
        options = [f"--deselect={one}" for one in using]
        done = _run(root, "-m", "pytest", "-n", "6", "--dist", "worksteal", "-m", SHORT, *options, *files)
        _check(done, "the tests of the core")
        counts = done.stdout.strip().splitlines()[-1].strip("= ")
        return f"{entered} files with entries; {counts or 'no summary'}; left out: {left_out} files, {len(using)} tests"


def _check(done: subprocess.CompletedProcess[str], what: str) -> None:
    if done.returncode:
        raise RuntimeError(f"{what} failed:\n{(done.stdout + done.stderr)[-6000:]}")


def main() -> int:
    """Try the slices; print a table, and return 1 if one of them cannot be deleted."""
    parser = argparse.ArgumentParser(description="Delete one slice after another in copies, and test the core there.")
    parser.add_argument("slices", nargs="*", metavar="SLICE", help="default: all of them")
    parser.add_argument("--tests", nargs="+", default=TESTS, metavar="PATH", help="folders with tests of the core")
    options = parser.parse_args()
    wanted = options.slices or slices()
    if unknown := {*wanted, *slices()} - (MARKS.keys() & {*slices()}):
        parser.error(f"no slice, or no entry in MARKS of {Path(__file__).name}: {', '.join(sorted(unknown))}")
    rows, failed = [], False
    for slice_ in wanted:
        began = time.monotonic()
        try:
            said = try_without(slice_, options.tests)
        except (Named, RuntimeError) as error:
            said, failed = f"FAILED: {error}", True
        rows.append(f"{slice_:<12} {time.monotonic() - began:>5.0f} s  {said}")
        print(rows[-1], flush=True)
    print("\n".join(["", "slice        seconds  without it", *(row.splitlines()[0] for row in rows)]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
