"""Where the repository is, and programs of Debian that tests here cannot do without."""

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


def program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.fail(f"{name} is not installed; .ci/run installs it, from Debian's packages")
    return path


@pytest.fixture(scope="session")
def prometheus() -> str:
    return program("prometheus")


@pytest.fixture(scope="session")
def promtool() -> str:
    return program("promtool")
