"""The artefacts of this source, built once for all tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.workers import ROOT

EPOCH = "1767225600"  #: 2026-01-01, in seconds: the time that the artefacts carry


def build(source: Path, into: Path) -> None:
    """Build wheel and sdist of a source folder, without a network."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(into)], cwd=source, check=True, capture_output=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH}, timeout=120,
    )  # fmt: skip


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist."""
    into = tmp_path_factory.mktemp("dist")
    build(ROOT, into)
    return into


@pytest.fixture(scope="session")
def wheel(artefacts: Path) -> Path:
    """The wheel; that of TEST_WHEEL, if there is one, as a release is tried."""
    given = os.environ.get("TEST_WHEEL")
    (built,) = [Path(given)] if given else artefacts.glob("*.whl")
    return built.resolve()
