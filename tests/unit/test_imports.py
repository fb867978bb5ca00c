"""What is loaded when nothing is done yet: a module of handlers, or a command line, must not wait for it."""

import subprocess
import sys

import pytest

HEAVY = {
    "asyncio", "fastapi", "importlib.resources", "opentelemetry", "prometheus_client", "pyspark", "redis", "ssl",
    "tempfile",
}  # fmt: skip


def _loaded(code: str) -> set[str]:
    """The modules in a fresh interpreter after this code."""
    asked = f"import sys\n{code}\nprint(*sys.modules, sep='\\n', file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stderr.splitlines())


def test_importing_reliq_loads_neither_redis_py_nor_asyncio() -> None:
    loaded = _loaded("import reliq")

    assert loaded & HEAVY == set()
    assert "reliq.ops" in loaded  # the question itself works


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["worker", "--help"], ["spark", "--help"]])
def test_the_command_line_explains_itself_without_the_parts_it_does_not_need(arguments: list[str]) -> None:
    loaded = _loaded(
        f"from reliq.cli import main\ntry: main.main({arguments!r})\nexcept SystemExit as end: assert not end.code"
    )

    assert loaded & HEAVY == set()
    assert ("reliq.spark" in loaded) == ("spark" in arguments)


def test_an_application_loads_redis_py_when_it_is_made_but_not_its_own_store_for_asyncio() -> None:
    loaded = _loaded("import reliq\nreliq.Reliq('redis://localhost:1')")

    assert "redis" in loaded
    assert "reliq.transport.aiostore" not in loaded


def test_the_sqs_endpoint_does_not_load_the_http_services_calls() -> None:
    loaded = _loaded("import reliq_sqs.server")

    assert "reliq_api.server" in loaded
    assert "reliq_api.app" not in loaded
