"""The examples do what they say, run as a user runs them."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.support.workers import ROOT

pytestmark = pytest.mark.campaign

NIGHTLY = os.environ.get("NIGHTLY_ROWS", "2000")  #: of the nightly job; 10000000: an hour or so
PATIENCE = 1200 + int(NIGHTLY) / 1000  #: seconds after which an example hangs, however slow the machine


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


@pytest.mark.timeout(PATIENCE + 60)
@pytest.mark.parametrize(
    ("example", "last", "logged"),
    [
        (["pubsub.py"], "redriven 1, dead 0, welcomed 3 of 3", ["failed", "failed", "failed", "dead"]),
        (["polling.py", "1"], "rounds; 2000 accounts", []),
        (["fastapi_orders.py"], "shipping {'order': 2}", []),
        (["taskiq_orders.py"], "shipped 4", None),
        (["django_shop/demo.py"], "shipped 3\norder 2 was rolled back", []),
        (["order_pipeline.py"], "billed 200 of 200, dead 0", None),
        pytest.param(["webhooks.py"], "delivered 300 of 300, dead 0", None, marks=pytest.mark.slow),
        (["asyncio_orders.py"], "shipped 500 of 500, acked 500", []),
        (["agent_stream.py"], "the answer is whole, in run 2", None),
        (["report_flow.py"], "ann is told\nsplit: handled, notify: handled", []),
        (["order_approval.py"], "how was order 1?\ncharged [1, 2], acked 2", None),
        pytest.param(["http_clients.py", "javascript"], "acked 2, delayed 1", [], marks=needs("node")),
        pytest.param(["http_clients.py", "go"], "acked 2, delayed 1", [], marks=[needs("go"), pytest.mark.slow]),
        pytest.param(
            ["spark_files.py"], "", None, marks=[needs("java"), pytest.mark.spark, pytest.mark.slow], id="spark_files"
        ),
        pytest.param(
            ["nightly_letters.py", NIGHTLY],
            f"letters-2026-11-20: {NIGHTLY} letters written, 0 dead\n{NIGHTLY} of {NIGHTLY} letters",
            None,
            marks=[needs("java"), pytest.mark.spark, pytest.mark.slow],
            id="nightly_letters",
        ),
    ],
)
def test_an_example(example, last, logged, tmp_path):
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("", "monitor", "api"))
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / example[0], *example[1:]],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False,
        timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().endswith(last)
    if logged is None:
        return
    events = [line.partition(" reliq.worker ")[2].split()[0] for line in done.stderr.splitlines() if "queue=" in line]
    assert events == logged, done.stderr
