"""Only ops spell Redis commands, those of reliq.ops and of slices: the layers above use named ops."""

import ast
import functools
import importlib
import io
import itertools
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OPS = ROOT / "reliq/ops"
EXEMPT = {
    ROOT / "monitor/reliq_monitor/reclaim.py",  # its transaction is the script that it cannot be
}
OPS_OF_SLICES = [*(ROOT / "reliq/features").glob("*/ops.py")]
RAW = {"command", "Op"}


@functools.cache
def sources():
    """The files above the ops, each with its syntax tree."""
    folders = ("reliq", "monitor/reliq_monitor", "api")
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [
        (path, ast.parse(path.read_text(encoding="utf-8")))
        for path in paths
        if OPS not in path.parents and path not in {*EXEMPT, *OPS_OF_SLICES}
    ]


@functools.cache
def nodes(tree):
    """Every node of a syntax tree: six tests look at each of them."""
    return list(ast.walk(tree))


def raw_commands(tree):
    """The lines that make an op from the words of a command: `ops.command("GET", key)` or `Op(("GET", key))`."""
    imported = {
        name.asname or name.name
        for node in nodes(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("reliq.ops")
        for name in node.names
        if name.name in RAW
    }
    for node in nodes(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="ops"), attr=name)) if name in RAW:
                yield node.lineno
            case ast.Call(func=ast.Name(id=name)) if name in imported:
                yield node.lineno


def test_no_raw_command_above_the_ops():
    found = [f"{path.relative_to(ROOT)}:{line}" for path, tree in sources() for line in raw_commands(tree)]
    assert found == []


def test_a_raw_command_is_found():
    tree = ast.parse('from reliq.ops import Op as One\nops.command("GET", "a")\nOne(("GET", "a"))')
    assert list(raw_commands(tree)) == [2, 3]


def test_no_key_is_spelled_above_the_model():
    allowed = {ROOT / "reliq" / name for name in ("contract/keys.py", "contract/key_names.py", "model/keys.py")}
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, tree in sources()
        if path not in allowed
        for node in nodes(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("reliq:{")
    ]
    assert found == []


@pytest.mark.parametrize("name", ["register", "claim", "claim_limited", "settle"])
def test_what_a_consumer_asks_of_redis_is_asked_in_one_place(name):
    found = [
        f"{path.relative_to(ROOT)}"
        for path, tree in sources()
        for node in nodes(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name
        if ast.unparse(node.func) == f"ops.{name}"
    ]
    assert found == ["reliq/protocol/claimant.py"]


#: Where code names partitions (docs/decisions/0016-homes.md): the layout and its changes, and what users read or write.
OF_PARTITIONS = {
    "api/reliq_api/routes/queues.py", "api/reliq_api/schemas/queues.py", "monitor/reliq_monitor/partitions.py",
    "reliq/aio/queue.py", "reliq/cli/services.py", "reliq/cli/size.py", "reliq/cli/sizing.py", "reliq/cli/spread.py",
    "reliq/client/queue.py", "reliq/contract/keywords.py", "reliq/contract/metrics.py", "reliq/contract/settings.py",
    "reliq/model/keys.py", "reliq/model/partitions.py", "reliq/observability/partition_metrics.py",
    "reliq/ops/partitions.py", "reliq/ops/schema.py", "reliq/protocol/partition_progress.py",
    "reliq/protocol/policy.py", "reliq/protocol/resizing.py", "reliq/protocol/resting.py", "reliq/protocol/shares.py",
    "reliq/protocol/spread.py", "reliq/worker/assignment.py",
}  # fmt: skip


def names_partitions(path):
    """Whether the code of a file does, beside what it imports and the methods of texts."""
    text = path.read_text(encoding="utf-8")
    if "partition" not in text.lower():
        return False
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    for before, token in itertools.pairwise(tokens):
        is_imported = token.line.lstrip().startswith(("from ", "import "))
        is_of_text = before.string == "." and token.string in {"partition", "rpartition"}
        if token.type == tokenize.NAME and not is_imported and not is_of_text and "partition" in token.string.lower():
            return True
    return False


def test_partitions_stand_behind_one_seam():
    spark = (ROOT / "reliq/spark", ROOT / "reliq/features/staging/spark")  # there they are Spark's own
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("reliq", "monitor/reliq_monitor", "api")
        for path in (ROOT / folder).rglob("*.py")
        if not any(one in path.parents for one in spark) and names_partitions(path)
    }
    assert found == OF_PARTITIONS


@pytest.mark.parametrize("package", ["reliq/ops", "api/reliq_api/schemas"])
def test_what_gathers_the_names_of_its_modules_has_them(package):
    """A module's import of the same name would otherwise hide what an earlier one defines."""
    gathering = importlib.import_module(package.removeprefix("api/").replace("/", "."))
    modules = re.findall(r"^from (\S+) import \*$", (ROOT / package / "__init__.py").read_text(), re.MULTILINE)
    assert len(modules) > 5
    for module in map(importlib.import_module, modules):
        own = [one for name, one in vars(module).items() if getattr(one, "__module__", "") == module.__name__]
        hidden = [one for one in own if not one.__name__.startswith("_") and one is not vars(gathering)[one.__name__]]
        assert hidden == []
