"""The recipes of docs/concepts/architecture.md, followed in a copy: what is declared once shows on every surface."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

OPTION = """
    Option(
        "colour", Text(), "the colour of the message", example="red", label="Colour",
        left_out={SCHEDULE: "a tick has none", SPARK: "a row has none", KOMBU: "AMQP has none"},
    ),
)  # fmt: skip

BY_NAME"""

OPTION_IS_THERE = """
import json
from sqlalchemy import create_engine
import reliq
from reliq.cli.main import _parser
from reliq.contrib import sql
from reliq_api import schemas
from reliq_api.enqueue.entries import HEADERS, read_entry
from reliq_api.ui.messages import OPTIONS

assert "colour" in reliq.MessageOptions.__optional_keys__ and "`colour`: the colour" in reliq.BatchOptions.__doc__
assert reliq.NewMessage(b"x", colour="red").colour == "red"
assert _parser().parse_args(["send", "q", "x", "--colour", "red"]).colour == "red"
assert _parser().parse_args(["publish", "a.b", "x", "--colour", "red"]).colour == "red"
assert schemas.NewMessage.model_fields["colour"].description == "The colour of the message."
assert read_entry(b'{"body": 1, "colour": "red"}')[1]["colour"] == "red"
assert HEADERS["reliq-colour"].name == "colour"
assert [one.label for one in OPTIONS if one.name == "colour"] == ["Colour"]
assert json.loads(sql.row_of("q", reliq.NewMessage(b"x", colour="red"))["options"]) == {"colour": "red"}
"""

SETTING = """
    Setting("mood", Whole(1, 9), "how the queue feels", "Mood of the queue", "calm", example="7"),
)  # fmt: skip

#: What the policy tells"""

SETTING_IS_THERE = """
import reliq
from reliq.protocol.policy import checked_setting, read_config
from reliq_api import schemas
from reliq_api.ui.policy import changes, written

assert "mood" in reliq.ConfigChanges.__optional_keys__ and "`mood`: how the queue feels" in reliq.ConfigChanges.__doc__
assert (checked_setting("mood", 7), read_config({"mood": "7"}).mood, reliq.Config().mood) == (7, 7, None)
assert schemas.ConfigChanges(mood=7).mood == 7 and "mood" in schemas.QueueConfig.model_fields
assert changes([("mood", "7")], reliq.Config()) == {"mood": 7} and written(reliq.Config(mood=7))["mood"] == "7"
"""


@pytest.fixture
def copy(tmp_path):
    for folder in ("reliq", "api", "tools"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    metrics = tmp_path / "docs" / "operations" / "metrics.md"  # its list of counters is generated too
    metrics.parent.mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "operations" / "metrics.md", metrics)
    return tmp_path


def edit(copy, name, old, new):
    path = copy / name
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{name} has {text.count(old)} times {old!r}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def run(copy, *arguments):
    environment = {**os.environ, "PYTHONPATH": f"{copy}:{copy / 'api'}"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_an_option_is_one_entry_and_what_it_does(copy):
    edit(copy, "reliq/contract/options.py", "\n)  # fmt: skip\n\nBY_NAME", OPTION)
    edit(copy, "reliq/model/outgoing.py", '    limit_key = ""\n', '    limit_key = ""\n    colour = ""\n')
    run(copy, "tools/generate_contract.py")
    run(copy, "-c", OPTION_IS_THERE)


def test_a_setting_is_one_entry(copy):
    edit(copy, "reliq/contract/settings.py", "\n)  # fmt: skip\n\n#: What the policy tells", SETTING)
    run(copy, "tools/generate_contract.py")
    run(copy, "-c", SETTING_IS_THERE)
