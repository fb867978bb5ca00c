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
    from reliq.cli.trials.campaign.actors import Told

_CAMPAIGN = Path("reliq/cli/trials/campaign")
_PATHS = (".", "monitor", "api")  #: where the packages are, in a folder of pip or in a source tree


def prepared(given: Path, folder: Path) -> Path:
    """Copy another version of reliq, and put the files of this campaign into the copy; return its folder.

    Raises InvalidSetting if there is no reliq in the given folder.
    """
    if not (given / "reliq" / "__init__.py").is_file():
        raise InvalidSetting(
            f"--older {given} has no package reliq: name a folder that `pip install --no-deps --target` has filled, "
            "or a source tree"
        )
    copy = folder / "older"
    for name in ("reliq", "reliq_monitor", "reliq_api", "monitor", "api"):
        if (given / name).is_dir():
            shutil.copytree(given / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(copy / _CAMPAIGN, ignore_errors=True)
    shutil.copytree(Path(__file__).parent, copy / _CAMPAIGN, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / _CAMPAIGN.parent / "__init__.py").touch()
    return copy


class OtherVersion:
    """A process that runs the code in a folder; to be used as a `multiprocessing.Process` is."""

    def __init__(self, target: "Callable[[Told], None]", told: "Told") -> None:
        paths = os.pathsep.join(str(told.code / path) for path in _PATHS) if told.code else ""
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
    from reliq.cli.trials.campaign.actors import run

    target, told = pickle.load(sys.stdin.buffer)  # noqa: S301  from the campaign
    run(target, told)


if __name__ == "__main__":
    main()
