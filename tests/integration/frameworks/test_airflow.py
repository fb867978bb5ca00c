"""The provider for Airflow, in an environment of its own: Airflow from the package registry, without a running one."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.support.workers import ROOT

PLACE = ROOT / ".data" / "airflow"
PACKAGES = ("apache-airflow==3.3.2", "apache-airflow-providers-common-messaging==2.1.2", "redis>=6.4", "msgspec>=0.19")


@pytest.fixture(scope="module")
def python() -> Path:
    """A Python with Airflow and this version of reliq; 300 MB, made once."""
    found = PLACE / "bin" / "python"
    if not (PLACE / "ready").exists():
        venv.create(PLACE, with_pip=True, clear=True)
        _install(found, *PACKAGES)
        (PLACE / "ready").touch()
    _install(found, "--no-deps", "--force-reinstall", str(ROOT))
    return found


def _install(python: Path, *packages: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (
        f"Airflow cannot be installed: is the package registry reachable? {done.stderr[-2000:]}"
    )


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Airflow 3.3 does not support this Python")
def test_a_message_is_acked_after_airflow_has_stored_its_event(url: str, python: Path, tmp_path: Path) -> None:
    story = Path(__file__).with_name("airflow_story.py")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"RELIQ_URL": url}
    done = subprocess.run(
        [str(python), str(story)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "airflow: all well" in done.stdout
