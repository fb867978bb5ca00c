"""A missing extra is one sentence: which package is missing, and how to install it from where reliq came from."""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from reliq import extras
from reliq.errors import MissingExtra

#: module -> the package that is missing, and the extra that brings it
NEEDS = {
    "reliq.contrib.airflow": ("airflow", "airflow"),
    "reliq.contrib.celery": ("celery", "celery"),
    "reliq.contrib.django": ("django", "django"),
    "reliq.contrib.fastapi": ("fastapi", "api"),
    "reliq.contrib.kombu": ("kombu", "celery"),
    "reliq.contrib.sql": ("sqlalchemy", "sql"),
    "reliq.contrib.taskiq": ("taskiq", "taskiq"),
    "reliq.otel": ("opentelemetry", "otel"),
}

IMPORTS = """
import importlib, sys
for module, (package, _) in {needs!r}.items():
    sys.modules[package] = None  # Python's own way to make an import fail
    try:
        importlib.import_module(module)
    except ImportError as error:
        print(module, type(error).__name__, error)
"""


def test_a_module_without_its_package_says_which_extra_to_install():
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS.format(needs=NEEDS)], capture_output=True, text=True, check=True, timeout=60
    )
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert lines.keys() == NEEDS.keys()
    for module, (package, extra) in NEEDS.items():
        assert lines[module].startswith(f"MissingExtra {module} needs the package {package}")
        assert f"[{extra}]" in lines[module]


@pytest.fixture
def installed(monkeypatch):
    """A function that makes this installation come from elsewhere: the content of direct_url.json, or None."""

    def come_from(direct: dict | None) -> None:
        class Distribution:
            @staticmethod
            def read_text(name: str) -> str | None:
                assert name == "direct_url.json"
                return None if direct is None else json.dumps(direct)

        monkeypatch.setattr(metadata, "distribution", lambda name: Distribution)

    return come_from


def test_what_came_from_an_index_is_completed_from_there(installed):
    installed(None)
    assert extras.install_command("api") == "pip install 'reliq-queue[api]'"


def test_what_came_from_a_folder_is_completed_from_there(installed, tmp_path):
    folder = tmp_path / "my {checkout}"
    folder.mkdir()
    installed({"url": folder.as_uri(), "dir_info": {}})
    assert extras.install_command("api") == f"pip install '{folder}[api]'"


def test_what_came_from_a_repository_is_completed_from_there(installed):
    installed({"url": "https://example.org/reliq.git", "vcs_info": {"vcs": "git", "commit_id": "1"}})
    assert extras.install_command("api") == "pip install 'reliq-queue[api] @ git+https://example.org/reliq.git'"


def test_a_folder_that_is_gone_is_not_named(installed, tmp_path):
    installed({"url": (tmp_path / "gone").as_uri(), "dir_info": {}})
    assert extras.install_command("api") == "pip install '.[api]' in reliq's source folder"


def test_without_an_installation_the_source_folder_is_named(monkeypatch):
    def none(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", none)
    assert extras.install_command("api") == "pip install '.[api]' in reliq's source folder"


def test_the_error_is_an_import_error_and_a_wrong_setting():
    error = extras.missing_extra("x", "sql", ModuleNotFoundError("no", name="sqlalchemy"))
    assert isinstance(error, MissingExtra)
    assert isinstance(error, ImportError)
    assert "x needs the package sqlalchemy: pip install" in str(error)


def test_no_text_tells_to_install_from_an_index_while_the_package_is_on_none():
    """`install_command` does, where the installation came from one."""
    root = Path(__file__).parents[2]
    folders = ("reliq", "api", "monitor/reliq_monitor", "examples", "docs")
    texts = [root / "README.md", *(path for folder in folders for path in (root / folder).rglob("*.*"))]
    for path in (path for path in texts if path.suffix in (".py", ".md", ".html", ".txt")):
        assert not re.search(r"pip install '?reliq-queue|'reliq-queue\[", path.read_text(encoding="utf-8")), path
