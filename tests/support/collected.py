"""Workers of pytest-xdist, forked from one process that has imported all test modules.

Otherwise each worker imports them, and in a fresh checkout compiles them: most of what collecting costs.
"""

import contextlib
import gc
import os
import socket
import subprocess
import sys
import threading
from types import ModuleType
from typing import Any

import pytest
from execnet import gateway_io
from execnet.gateway_base import Popen2IO

from tests.support import warm


def prepare(config: pytest.Config) -> None:
    """Have pytest-xdist get its workers from a process that imports what this one would collect."""
    # Its output is of no use: what cannot be imported is told by the workers, which try it again.
    given = config.invocation_params
    server, process = warm.server_of("tests.support.collected", *given.args, folder=given.dir)

    class Worker(subprocess.Popen[bytes]):
        def _execute_child(self, args: list[str], *rest: Any) -> None:
            p2cread, _, _, c2pwrite, _, _ = rest[9:15]
            told = {"line": args[-1], "environment": dict(os.environ)}
            try:
                self.pid = warm.forked(server, told, [p2cread, c2pwrite, 2])
            except OSError:  # it has ended, perhaps by a module that it imported: the worker imports them itself
                super()._execute_child(args, *rest)  # type: ignore[misc]
                return
            self._child_created = True
            self._close_pipe_fds(*rest[9:15])  # type: ignore[attr-defined]

    class Workers(gateway_io.Popen2IOMaster):
        def __init__(self, args: list[str], execmodel: Any) -> None:
            self.popen = Worker(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            Popen2IO.__init__(self, self.popen.stdin, self.popen.stdout, execmodel=execmodel)

    def end() -> None:
        server.close()
        process.wait()

    config.add_cleanup(end)
    patch = pytest.MonkeyPatch()
    patch.setattr(gateway_io, "Popen2IOMaster", Workers)
    config.add_cleanup(patch.undo)


class Imports:
    """A plugin that imports the modules of the tests, and makes no test of them."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self) -> list[pytest.Item]:
        return []


def main() -> None:
    """Import what the workers need, and fork; a child goes on as a worker."""
    gc.disable()
    before = dict(os.environ)
    given = [*sys.argv[2:], "--numprocesses=0", "--collect-only", "-qq", "-p", "no:rerunfailures"]  # it starts a thread
    pytest.main(given, plugins=[Imports()])
    assert threading.active_count() == 1, "a fork of one with threads is not whole"
    with contextlib.suppress(ImportError):  # the constants in all modules: hypothesis' own plugin has each worker look
        from hypothesis.internal.conjecture.providers import _get_local_constants

        _get_local_constants()
    gc.freeze()
    set_by_modules = {name: value for name, value in os.environ.items() if before.get(name) != value}
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        told = warm.serve(connection)
    if told is not None:
        os.environ.clear()
        os.environ.update({**told["environment"], **set_by_modules})
        sys.argv = ["-c"]
        sys.modules["__main__"] = ModuleType("__main__")
        for place, name in enumerate(("stdin", "stdout", "stderr")):
            setattr(sys, name, warm.opened(place, getattr(sys, f"__{name}__")))
        gc.enable()
        exec(told["line"], vars(sys.modules["__main__"]))


if __name__ == "__main__":
    main()
