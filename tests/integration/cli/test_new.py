"""`reliq new`: a project that works as it is written."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from reliq import extras
from reliq.cli import main
from tests.support.workers import ROOT, eventually, process

PATHS = os.pathsep.join(map(str, (ROOT, ROOT / "monitor", ROOT / "api")))


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """The folder of a new project."""
    monkeypatch.chdir(tmp_path)
    assert main.main(["new", "shop_of_mine"]) == 0
    return tmp_path / "shop_of_mine"


def run(*command, folder):
    environment = {**os.environ, "PYTHONPATH": PATHS, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_tests_of_a_new_project_pass(shop):
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", folder=shop)
    assert "2 passed" in done.stdout, done.stdout


def test_a_new_project_passes_pyright(shop):
    pytest.importorskip("pyright", reason="the oldest dependencies are tested without it")
    done = run("-m", "pyright", "--pythonpath", sys.executable, ".", folder=shop)
    assert done.stdout.startswith("0 errors"), done.stdout


def test_the_application_of_a_new_project_sends_and_handles(shop, app):
    with process("worker", "shop_of_mine:app", folder=shop, RELIQ_URL=app.url) as worker:
        done = subprocess.run(
            [sys.executable, "shop_of_mine.py"], cwd=shop, capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, "PYTHONPATH": PATHS, "RELIQ_URL": app.url},
        )  # fmt: skip
        assert done.stdout.startswith("sent ")
        assert eventually(worker.stdout.readline) == b"to ada: order 1 is on its way\n"


def test_the_compose_file_of_a_new_project_names_its_module_and_a_redis_that_evicts_nothing(shop):
    services = yaml.safe_load((shop / "compose.yaml").read_text())["services"]
    assert services["worker"]["command"] == "reliq worker shop_of_mine:app --processes 2"
    assert "--maxmemory-policy noeviction" in services["redis"]["command"]
    if shutil.which("docker-compose"):
        done = subprocess.run(
            ["docker-compose", "-f", "compose.yaml", "config"], cwd=shop, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("origin", ["file:///src/my%20reliq", "", None])
def test_the_readme_of_a_new_project_says_how_an_image_gets_a_local_reliq(tmp_path, monkeypatch, origin):
    monkeypatch.setattr(extras, "_origin", lambda: origin)
    monkeypatch.chdir(tmp_path)
    assert main.main(["new", "shop_of_mine"]) == 0
    readme = Path("shop_of_mine", "README.md").read_text()
    assert ("pip wheel --no-deps --wheel-dir . '/src/my reliq'" in readme) == bool(origin)


def test_every_file_is_filled_in_and_says_where_reliq_comes_from(shop):
    names = {path.name for path in shop.iterdir()}
    assert names == {
        ".gitignore", "Dockerfile", "README.md", "compose.yaml", "conftest.py", "requirements.txt", "shop_of_mine.py",
        "test_shop_of_mine.py",
    }  # fmt: skip
    for path in shop.iterdir():
        text = path.read_text()
        assert "NAME" not in text, path
        assert "REQUIREMENT" not in text, path
    assert "reliq-queue[api,embedded,reload,testing]" in (shop / "requirements.txt").read_text()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Shop", "is no name for a module"), ("my-shop", "is no name for a module"),
        ("class", "is a word of Python"), ("../x", "is no name for a module"),
        ("json", "there is a module 'json' already"),
        ("reliq", "there is a module 'reliq' already"), ("taken", "the folder taken cannot be created: File exists"),
    ],
)  # fmt: skip
def test_a_name_that_cannot_be_used_is_refused(tmp_path, monkeypatch, capsys, name, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text(json.dumps(None))
    assert main.main(["new", name]) == 2
    assert says in capsys.readouterr().err
