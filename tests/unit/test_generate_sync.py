"""The synchronous API is the asyncio one, translated."""

import ast
from pathlib import Path

import pytest

from tools import generate_sync


@pytest.mark.parametrize(
    ("asyncio_code", "synchronous"),
    [
        ("value = await self.store.run(steps)", "value = self.store.run(steps)"),
        ("async def close(self) -> None: ...", "def close(self) -> None: ..."),
        ("async with await orders.prepare(1) as handle:", "with orders.prepare(1) as handle:"),
        ("async for one in all_of_them:", "for one in all_of_them:"),
        ("async def __aenter__(self): ...", "def __enter__(self): ..."),
        ("async def __aexit__(self, *error): ...", "def __exit__(self, *error): ..."),
        ("from reliq.aio.queue import Queue", "from reliq.client.queue import Queue"),
        ("from reliq.features.cycle.aio import Cycle", "from reliq.features.cycle.client import Cycle"),
        ("from reliq.transport.aiostore import AioStore", "from reliq.transport.store import Store"),
        ('return f"<aio.Queue {self.name}>"', 'return f"<Queue {self.name}>"'),
        ("# a reliq.aio.Reliq awaits nothing else", "# a reliq.aio.Reliq awaits nothing else"),
    ],
)
def test_each_difference_is_a_word(asyncio_code, synchronous):
    assert generate_sync.translated(asyncio_code) == synchronous


@pytest.mark.parametrize(("target", "source"), generate_sync.modules().items())
def test_no_asyncio_is_left_in_a_generated_module(target, source):
    tree = ast.parse(generate_sync.generated(target, source))

    assert not [node for node in ast.walk(tree) if isinstance(node, (ast.Await, ast.AsyncFunctionDef, ast.AsyncWith))]


def test_the_modules_in_the_tree_are_the_generated_ones():
    assert generate_sync.main(["--check"]) == 0


def test_a_module_that_differs_is_named_and_written_anew(tmp_path, monkeypatch, capsys):
    for folder in (generate_sync.SOURCE, generate_sync.TARGET):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "reliq/aio/cycle.py").write_text("async def one() -> int:\n    return await two()\n")
    (tmp_path / "reliq/client/cycle.py").write_text("def one() -> int:\n    return 3\n")
    monkeypatch.setattr(generate_sync, "ROOT", Path(tmp_path))

    assert generate_sync.main(["--check"]) == 1
    assert "reliq/client/cycle.py differ" in capsys.readouterr().err

    assert generate_sync.main([]) == 0
    assert (tmp_path / "reliq/client/cycle.py").read_text() == (
        "# Generated from reliq/aio/cycle.py by tools/generate_sync.py: do not edit\n"
        "def one() -> int:\n    return two()\n"
    )
    assert generate_sync.main(["--check"]) == 0
