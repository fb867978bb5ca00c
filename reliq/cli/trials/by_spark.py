"""The half of the demo's messages that a Spark job sends."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from reliq.errors import InvalidSetting, ReliqError
from reliq.model.element import new_id
from reliq.spark import check_pyspark
from reliq.spark.session import check_java

_MESSAGE = "SELECT id, to_json(struct(path)) AS value FROM input"


def missing() -> str:
    """Return a sentence that says what a Spark job lacks; empty if it can run."""
    try:
        check_java()
        check_pyspark()
    except InvalidSetting as error:
        return str(error)
    return ""


def send_by_spark(url: str, queue: str, paths: Sequence[Path], folder: Path) -> list[str]:
    """Send a message for each path in one commit; return the ids. Raises ReliqError with the output of the job."""
    ids = [new_id() for _ in paths]
    rows = folder / "paths.json"
    lines = (json.dumps({"id": one, "path": str(path)}) for one, path in zip(ids, paths, strict=True))
    rows.write_text("\n".join(lines))
    command = [sys.executable, "-m", "reliq", "spark", "enqueue", "--input", str(rows), "--format", "json"]
    command += ["--queue", queue, "--select", _MESSAGE]
    environment = {**os.environ, "RELIQ_URL": url}
    job = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if job.returncode:
        raise ReliqError(f"the Spark job failed: {job.stderr.strip()[-2000:]}")
    return ids
