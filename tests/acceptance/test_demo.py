"""The demo as a newcomer runs it: two faults, each of a worker that holds messages, and nothing is lost."""

import re

import pytest

from tests.support.workers import process

pytestmark = pytest.mark.campaign


def test_the_demo_without_java_says_what_it_leaves_out_and_both_faults_catch_a_worker_at_work(tmp_path):
    with process("demo", "--files", "400", folder=tmp_path, JAVA_HOME="/nonexistent") as demo:
        printed = demo.stdout.read().decode()
        assert demo.wait(120) == 0, demo.stderr.read()
    assert "left out, their files are sent from here: Spark needs Java 17 or newer" in printed
    held = re.findall(r"while it held (\d+) messages", printed)
    assert len(held) == 2
    assert all(int(count) >= 1 for count in held)
    assert re.search(r"handled +400\n", printed)
    assert re.search(r"lost +0\n", printed)
    assert "Nothing was lost." in printed
