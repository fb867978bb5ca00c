"""A guard ends a process that this process has started when this process is gone, even after SIGKILL."""

import subprocess

#: Reads until this process's end of the pipe closes. Only built-in commands of the shell: PATH may be empty.
_SCRIPT = 'while read -r _; do :; done; kill "$0"'


class Guard:
    """Sends SIGTERM to the process when this process is gone, until it is dismissed."""

    def __init__(self, pid: int) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, str(pid)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def dismiss(self) -> None:
        """End the guard; the process stays."""
        self._shell.kill()
        self._shell.communicate()
