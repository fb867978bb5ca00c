"""Processes of a campaign that run another version of reliq, of which only a folder with its packages is known."""

import contextlib
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from reliq.errors import InvalidSetting
from reliq.runtime.guard import Guard

if TYPE_CHECKING:
    from tests.campaign.actors import Told

_PACKAGES = ("reliq", "reliq_monitor", "reliq_api")
_PATHS = (".", "monitor", "api")  #: where the packages are, in a folder of pip or in a source tree
_ROOT = Path(__file__).parents[2]  #: comes last, so that only the campaign itself is imported from here


def prepared(given: Path, folder: Path) -> Path:
    """Copy the packages of another version of reliq; return the folder of the copy. Raises InvalidSetting."""
    copy = folder / "older"
    for package in _PACKAGES:
        found = next((path for path in _PATHS if (given / path / package / "__init__.py").is_file()), None)
        if found is None:
            raise InvalidSetting(
                f"--older {given} has no package {package}: name a folder that `pip install --no-deps --target` has "
                "filled, or a source tree"
            )
        shutil.copytree(given / found / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


class OtherVersion:
    """A process that runs the code in a folder; to be used as a `multiprocessing.Process` is."""

    def __init__(self, target: "Callable[[Told], None]", told: "Told") -> None:
        paths = os.pathsep.join(map(str, (told.code, _ROOT)))
        with (told.folder / "processes.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=log, stderr=log,
                env={**os.environ, "PYTHONPATH": paths}, cwd=told.folder,  # `-m` looks there first
            )  # fmt: skip
        self._guard = Guard(self._process.pid)
        if self._process.stdin is not None:
            self._process.stdin.write(pickle.dumps((target, told)))
            self._process.stdin.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exitcode(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()

    def terminate(self) -> None:
        self._process.terminate()

    def join(self, timeout: float | None = None) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
            self._guard.dismiss()


def main() -> None:
    """Be the process that is told what to do on standard input."""
    from tests.campaign.actors import run

    target, told = pickle.load(sys.stdin.buffer)
    run(target, told)


if __name__ == "__main__":
    main()
