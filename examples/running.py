"""What several examples need: services as processes of their own, and waiting."""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).parent


@contextlib.contextmanager
def command(*arguments: str, url: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command of reliq on the Redis at `url` while the block runs."""
    child = subprocess.Popen(
        [sys.executable, "-m", "reliq", *arguments], cwd=HERE, env={**os.environ, "RELIQ_URL": url, **environment},
        stderr=subprocess.PIPE if arguments[0] == "api" else None, text=True,
    )  # fmt: skip
    try:
        yield child
    finally:
        child.terminate()
        child.wait()
        if child.stderr:
            child.stderr.close()


@contextlib.contextmanager
def http_service(url: str) -> Iterator[str]:
    """Run the HTTP service on a free port; yield its address."""
    with command("api", "--no-auth", "--port", "0", url=url) as child:
        assert child.stderr is not None
        for line in child.stderr:
            if found := re.search(r"serving (http://\S+)", line):
                yield found[1]
                return
        sys.exit("the HTTP service did not start")


def wait_for(condition: Callable[[], object], seconds: float = 600.0) -> None:
    """Wait until the condition is true."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            sys.exit("this takes too long: something is wrong")
        time.sleep(0.02)
