"""The half of the demo's messages that is sent over HTTP."""

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from reliq.embedded import free_port
from reliq.errors import ReliqError
from reliq.extras import install_command, is_installed

_START_TIMEOUT = 30.0


def missing() -> str:
    """Return a sentence that says what the HTTP service lacks; empty if it can run."""
    lacking = [name for name in ("fastapi", "uvicorn", "jinja2") if not is_installed(name)]
    return f"The HTTP service needs the package {lacking[0]}: {install_command('api')}" if lacking else ""


def send_by_http(url: str, queue: str, paths: Sequence[Path]) -> list[str]:
    """Send a message for each path in one NDJSON batch to a new `reliq api`; return the ids. Raises ReliqError."""
    lines = "\n".join(json.dumps({"body": {"path": str(path)}}) for path in paths)
    with _service(url) as address:
        request = urllib.request.Request(
            f"{address}/v1/queues/{queue}/messages/batch",
            data=lines.encode(),
            headers={"Content-Type": "application/x-ndjson"},
            method="POST",
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return [result["id"] for result in json.load(answer)["results"]]
        except urllib.error.HTTPError as error:
            raise ReliqError(f"the HTTP service answered {error.code}: {error.read()[:500]!r}") from None


@contextlib.contextmanager
def _service(url: str) -> Iterator[str]:
    """Run a `reliq api` process on a free local port; yield its address."""
    port = free_port()
    command = [sys.executable, "-m", "reliq", "api", "--no-auth", "--port", str(port), "--quiet"]
    environment = {**os.environ, "RELIQ_URL": url}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        address = f"http://127.0.0.1:{port}"
        try:
            _wait_until_ready(address, process)
            yield address
        finally:
            process.terminate()


def _wait_until_ready(address: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START_TIMEOUT
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/readyz", timeout=5):
            return
        time.sleep(0.05)
    raise ReliqError(f"the HTTP service at {address} did not start")
