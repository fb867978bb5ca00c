"""An application that configures logging itself: each line of the worker is written once, by its configuration."""

import json
import signal

import pytest

from tests.support.workers import process

APP = """
import logging, logging.config, sys
import reliq

{configured}
app = reliq.Reliq()
logging.getLogger("shop").info("imported")

@app.handler("q", retry=0)
def work(message):
    logging.getLogger("shop").info("working", extra={{"order": 7}})
    raise ValueError("no")
"""
BASIC = 'logging.basicConfig(level=logging.INFO, format="MINE %(name)s %(message)s")'
DICT = """
logging.config.dictConfig({
    "version": 1,
    "formatters": {"f": {"format": "MINE %(name)s %(message)s"}},
    "handlers": {"h": {"class": "logging.StreamHandler", "formatter": "f"}},
    "root": {"handlers": ["h"], "level": "INFO"},
})
"""
ADDED = """
handler = logging.StreamHandler()
handler.setFormatter(logging.Formatter("MINE %(name)s %(message)s"))
logging.getLogger().addHandler(handler)
"""
NOT_ROOT = 'logging.config.dictConfig({"version": 1})'
IN_MEMORY = "import io; logging.getLogger().addHandler(logging.StreamHandler(io.StringIO()))"
EVENTS = ("started ", "dead ", "stopping ", "stopped ")


def logged(app, folder, configured, *options):
    """The lines of a worker that handles one message and stops."""
    (folder / "shop.py").write_text(APP.format(configured=configured))
    app.queue("q").send("x")
    lines: list[str] = []
    with process("worker", "shop", "--no-monitor", *options, folder=folder, RELIQ_URL=app.url) as child:
        while "reason=max_failures" not in "".join(lines):
            line = child.stderr.readline().decode()
            assert line, lines
            lines.append(line.rstrip())
        child.send_signal(signal.SIGTERM)
        lines += child.stderr.read().decode().splitlines()
        assert child.wait(20) == 0
    return lines


@pytest.mark.parametrize("configured", [BASIC, DICT, ADDED], ids=["basicConfig", "dictConfig", "addHandler"])
def test_its_own_handler_writes_each_line_once(app, tmp_path, configured):
    lines = logged(app, tmp_path, configured)
    for event in EVENTS:
        written = [line for line in lines if f"reliq.worker {event}" in line]
        assert [line[:5] for line in written] == ["MINE "]
    assert [line for line in lines if line.startswith("MINE shop ")] == ["MINE shop imported", "MINE shop working"]


@pytest.mark.parametrize("configured", ["", NOT_ROOT, IN_MEMORY], ids=["nothing", "not the root", "not printing"])
def test_what_no_handler_of_its_own_prints_is_written_by_reliq(app, tmp_path, configured):
    entries = [json.loads(line) for line in logged(app, tmp_path, configured, "--log-json")]
    own = [one["message"] for one in entries if one["logger"] == "reliq.worker"]
    for event in EVENTS:
        assert len([message for message in own if message.startswith(event)]) == 1
    told = [one["message"] for one in entries if one["logger"] == "shop"]
    assert told == (["working"] if configured == IN_MEMORY else ["imported", "working"])
    assert [one["order"] for one in entries if one["message"] == "working"] == [7]


def test_json_that_its_own_handler_does_not_write_is_said(app, tmp_path):
    lines = logged(app, tmp_path, DICT, "--log-json")
    (said,) = [line for line in lines if "log_json_unused" in line]
    assert said.startswith("MINE reliq.worker ")
