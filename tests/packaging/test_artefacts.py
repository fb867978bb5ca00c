"""What is built is complete, and the same whenever and wherever it is built."""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import BytesParser

import pytest

import reliq
from tests.packaging.conftest import build
from tests.support.workers import ROOT

PACKAGES = {
    "reliq": "reliq",
    "pyspark_reliq": "pyspark_reliq",
    "monitor/reliq_monitor": "reliq_monitor",
    "api/reliq_api": "reliq_api",
    "api/reliq_sqs": "reliq_sqs",
}


def source_files(*folders):
    """Return the files of the source, also those that are not committed yet."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in listed if (ROOT / name).is_file()]


def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_has_every_file_of_the_packages_and_nothing_else(wheel):
    expected = set(source_files(*PACKAGES))
    for folder, package in PACKAGES.items():
        expected = {name.replace(f"{folder}/", f"{package}/", 1) for name in expected}
    found = {name for name in names(wheel) if ".dist-info/" not in name}
    assert found == expected


@pytest.mark.parametrize(
    "needed",
    [
        "reliq/lua/settle.lua", "reliq/py.typed", "reliq_api/py.typed", "reliq_monitor/py.typed",
        "reliq_sqs/py.typed", "reliq_api/ui/templates/base.html", "reliq_api/ui/static/app.css",
        "reliq/cli/project/compose.yaml",
    ],
)  # fmt: skip
def test_the_wheel_has_what_is_no_python(wheel, needed):
    assert needed in names(wheel)


def test_the_wheel_has_no_campaign(wheel):
    """The fault campaign, its checker and its servers belong to the tests."""
    assert not [name for name in names(wheel) if any(word in name for word in ("campaign", "checker", "proxy"))]


def test_demo_bench_and_chaos_need_nothing_but_the_wheel(wheel, tmp_path):
    """`-S`: without the folders of the source, which an editable installation puts into the path of Python."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    trials = sorted(name for name in names(wheel) if name.startswith("reliq/cli/trials/"))
    modules = [name.removesuffix(".py").replace("/", ".") for name in trials if name != "reliq/cli/trials/__init__.py"]
    assert {"reliq.cli.trials.demo", "reliq.cli.trials.benchmark", "reliq.cli.trials.chaos"} <= set(modules)
    code = "import importlib, sys; print(*(importlib.import_module(name).__file__ for name in sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, *modules], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), sysconfig.get_path("purelib")))},
    )  # fmt: skip
    assert done.stdout.split() == [str(tmp_path / name) for name in trials if not name.endswith("/__init__.py")], (
        done.stderr
    )


def test_the_metadata_says_what_it_is(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        about = BytesParser().parsebytes(archive.read(metadata))
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())
    assert (about["Name"], about["Version"]) == ("reliq-queue", reliq.__version__)
    assert about["Requires-Python"] == ">=3.11"
    assert "Programming Language :: Python :: 3.14" in about.get_all("Classifier", [])
    core = [one for one in about.get_all("Requires-Dist", []) if "extra" not in one]
    assert [one.partition(">")[0] for one in core] == ["msgspec", "redis"]


def test_two_builds_are_identical(artefacts, tmp_path):
    """Another folder, other times of the files, and another day: only SOURCE_DATE_EPOCH is the same."""
    for name in source_files():
        (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / "copy" / name)
    build(tmp_path / "copy", tmp_path / "again")
    assert sums(tmp_path / "again") == sums(artefacts)


def test_the_wheel_of_the_sdist_is_the_wheel_of_the_source(artefacts, tmp_path):
    (sdist,) = artefacts.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    build(source, tmp_path / "again")
    wheels = {name: total for name, total in sums(artefacts).items() if name.endswith(".whl")}
    assert wheels.items() <= sums(tmp_path / "again").items()


def sums(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
