"""The recipes of docs/concepts/architecture.md, followed in a copy: what is declared once shows on every surface."""

import pytest

from tests.support.recipes import Copy

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
from tools.site.reference import PAGES

assert "colour" in reliq.MessageOptions.__optional_keys__ and "`colour`: the colour" in reliq.BatchOptions.__doc__
assert reliq.NewMessage(b"x", colour="red").colour == "red"
assert _parser().parse_args(["send", "q", "x", "--colour", "red"]).colour == "red"
assert _parser().parse_args(["publish", "a.b", "x", "--colour", "red"]).colour == "red"
assert schemas.NewMessage.model_fields["colour"].description == "The colour of the message."
assert read_entry(b'{"body": 1, "colour": "red"}')[1]["colour"] == "red"
assert HEADERS["reliq-colour"].name == "colour"
assert [one.label for one in OPTIONS if one.name == "colour"] == ["Colour"]
page = PAGES["reference/message-options.md"]()
assert "| `colour` | a text, such as `red` |" in page and "| a tick has none |" in page
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
from tools.site.reference import PAGES

assert "mood" in reliq.ConfigChanges.__optional_keys__ and "`mood`: how the queue feels" in reliq.ConfigChanges.__doc__
assert (checked_setting("mood", 7), read_config({"mood": "7"}).mood, reliq.Config().mood) == (7, 7, None)
assert "| `mood` | 1 to 9 | calm | how the queue feels |" in PAGES["reference/queue-settings.md"]()
assert schemas.ConfigChanges(mood=7).mood == 7 and "mood" in schemas.QueueConfig.model_fields
assert changes([("mood", "7")], reliq.Config()) == {"mood": 7} and written(reliq.Config(mood=7))["mood"] == "7"
"""


KEY = """
    Key("moods", "hash", "how the queue felt, by ms", group=PLACES),
    Key("delayed","""

KEY_IS_THERE = """
from reliq.contract.keys import described
from reliq.model.keys import QueueKeys
from reliq.ops import signatures
from tools.site.reference import PAGES

keys = QueueKeys("q")
assert keys.moods == "reliq:{q}:moods" == keys.places[-1] and keys.moods in keys.everything
assert described(keys.moods).kind == "hash" and "| `moods` | hash | how the queue felt" in PAGES["reference/keys.md"]()
"""

DUTY = '''"""A duty that looks at the mood of queues."""

from reliq import ops
from reliq.ops import Steps
from reliq_monitor.duty import Duty
from reliq_monitor.queue_scan import Survey


class Moods(Duty[int]):
    """Looks at the mood."""

    name = "moods"
    effect = "no one knows how the queues feel"

    def turn(self, survey: Survey) -> Steps[int]:
        """Look once."""
        yield ops.server_time()
        return 1
'''

DUTY_IS_THERE = """
from pathlib import Path
from reliq.transport.store import Store
from reliq_monitor.duties import DUTIES
from reliq_monitor.node_monitor import NodeMonitor
from reliq_monitor.place import WHOLE

assert "moods" in [one.name for one in DUTIES]
assert NodeMonitor(Store("redis://localhost:1"), 0.05, None, 3.0, WHOLE).state().failures["moods"] == 0
runbook = Path("docs/runbooks/monitor-duty-failing.md").read_text()
assert "| `moods` | no one knows how the queues feel |" in runbook
"""


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path)


def test_an_option_is_one_entry_and_what_it_does(copy):
    copy.edit("reliq/contract/options.py", "\n)  # fmt: skip\n\nBY_NAME", OPTION)
    copy.edit("reliq/model/outgoing.py", '    limit_key = ""\n', '    limit_key = ""\n    colour = ""\n')
    copy.generate("contract")
    copy.run("-c", OPTION_IS_THERE)


def test_a_setting_is_one_entry(copy):
    copy.edit("reliq/contract/settings.py", "\n)  # fmt: skip\n\n#: What the policy tells", SETTING)
    copy.generate("contract")
    copy.run("-c", SETTING_IS_THERE)


def test_a_key_is_one_entry(copy):
    copy.edit("reliq/contract/keys.py", '\n    Key("delayed",', KEY)
    copy.generate("contract", "scripts")
    copy.run("-c", KEY_IS_THERE)
    claim = (copy.root / "reliq" / "lua" / "claim.lua").read_text(encoding="utf-8")
    assert "local processing, lease, consumers = KEYS[15], KEYS[16], KEYS[17]" in claim


def test_a_duty_is_a_class_and_its_place_in_the_list(copy):
    copy.write("monitor/reliq_monitor/moods.py", DUTY)
    copy.edit("monitor/reliq_monitor/duties.py", "    Promotion,\n)", "    Promotion,\n    Moods,\n)")
    copy.edit(
        "monitor/reliq_monitor/duties.py",
        "from reliq_monitor.partitions import",
        "from reliq_monitor.moods import Moods\nfrom reliq_monitor.partitions import",
    )
    copy.generate("duties")
    copy.run("-c", DUTY_IS_THERE)
