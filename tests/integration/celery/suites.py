"""The test suites of kombu and Celery: fetched from the package registry, and run against a broker."""

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.workers import ROOT

CACHE = ROOT / ".data" / "sdists"
_TEST_TIMEOUT = 400  #: seconds; the longest tests wait for minutes that something does not happen
#: Processes that a suite starts know the transport, too.
_SITE = "import reliq.contrib.kombu\n"
#: A plugin that runs a part of the suite: every n-th test, since the long ones are neighbours.
_PART = "def pytest_collection_modifyitems(items):\n    items[:] = items[{part}::{parts}]\n"


@dataclass(frozen=True, slots=True)
class Sdist:
    """A source distribution with a test suite."""

    name: str
    version: str
    sha256: str

    def suite(self) -> Path:
        """Return a folder in which the package `t` is this suite; downloads and checks it once."""
        folder = CACHE / f"{self.name}-{self.version}"
        if not (folder / "t").exists():
            CACHE.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=CACHE) as place:
                archive = self._download(Path(place))
                with tarfile.open(archive) as files:
                    wanted = [one for one in files.getmembers() if one.name.startswith(f"{folder.name}/t/")]
                    files.extractall(place, wanted, filter="data")
                folder.mkdir(exist_ok=True)
                try:
                    (Path(place) / folder.name / "t").rename(folder / "t")
                except OSError:  # another test worker was faster
                    assert (folder / "t").exists()
        return folder

    def _download(self, folder: Path) -> Path:
        command = [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
            "--no-binary", self.name, "--dest", str(folder), f"{self.name}=={self.version}",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (
            f"{self.name} {self.version} cannot be fetched, is the package registry reachable? {done.stderr}"
        )
        archive = folder / f"{self.name}-{self.version}.tar.gz"
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        assert found == self.sha256, f"{archive.name} has the hash {found} instead of {self.sha256}"
        return archive


KOMBU = Sdist("kombu", "5.7.0", "31e62fdfd2381caa3422f8e02b84a491d9a2180ddda74507b57f4cb1e1c2c2c9")
CELERY = Sdist("celery", "5.7.0", "6a5dfcf6662287204f009a02002b9e66c83d4105e47ebabdc7079108772fc6f0")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one test: passed, failed, or skipped with the reason."""

    test: str
    result: str
    reason: str = ""


def run(
    suite: Path,
    broker: str,
    arguments: Sequence[str],
    timeout: float,
    options: Mapping[str, object] | None = None,
    part: tuple[int, int] = (0, 1),
) -> list[Outcome]:
    """Run pytest on a suite against a broker, and return the outcomes.

    `options`: Celery settings; `part`: run only this part of so many.
    """
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        (root / "sitecustomize.py").write_text(_SITE)
        (root / "part_of_the_suite.py").write_text(_PART.format(part=part[0], parts=part[1]))
        (root / "integration-tests-config.json").write_text(json.dumps(dict(options or {})))
        report = root / "report.xml"
        command = [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:rerunfailures",
            "-p", "part_of_the_suite", "-c", os.devnull, "--rootdir", place, "-W", "ignore",
            "--timeout", str(_TEST_TIMEOUT), "-p", "celery.contrib.pytest",
            "-o", "python_classes=test_* Test*", f"--junitxml={report}", *arguments,
        ]  # fmt: skip
        done = subprocess.run(
            command, cwd=suite, env=_environment(suite, root, broker), capture_output=True, text=True,
            timeout=timeout, check=False,
        )  # fmt: skip
        assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
        return outcomes_of(report)


def _environment(suite: Path, root: Path, broker: str) -> dict[str, str]:
    host = broker.removeprefix("reliq+").removeprefix("redis://").partition("/")[0]
    name, _, port = host.partition(":")
    paths = [root, suite, ROOT, ROOT / "api", ROOT / "monitor"]
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "TEST_BROKER": broker,
        "TEST_BACKEND": f"redis://{host}/0",
        "REDIS_HOST": name,
        "REDIS_PORT": port,
    }


def outcomes_of(report: Path) -> list[Outcome]:
    found: dict[str, Outcome] = {}
    for case in ET.parse(report).iter("testcase"):
        test = f"{case.get('classname', '')}::{case.get('name')}"
        result, reason = "passed", ""
        for kind, name in (("skipped", "skipped"), ("failure", "failed"), ("error", "failed")):
            if (child := case.find(kind)) is not None:
                result, reason = (
                    name,
                    (child.get("message") or "").splitlines()[0][:160] if child.get("message") else "",
                )
        if found.get(test, Outcome(test, "")).result != "failed":  # a subtest that failed comes before its test
            found[test] = Outcome(test, result, reason)
    return list(found.values())
