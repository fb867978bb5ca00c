"""Which scripts only read: a lost reply of such a call leaves no doubt, so the next node, or the next try, is asked."""

import re

from reliq.ops.script import Script
from reliq.transport.calls import READING_SCRIPTS
from tests.support.scripts import scripts
from tests.support.state import World


def test_a_script_that_writes_nothing_is_known_for_that(world: World):
    found = {path.stem: set(re.findall(r"redis\.p?call\(\s*'([A-Z]+)'", Script(name).source))
             for name, path in scripts().items()}  # fmt: skip
    flags = {name: info["flags"] for name, info in world.redis.command().items()}
    writing = {command for commands in found.values() for command in commands if "write" in flags[command.lower()]}
    reading = {name for name, commands in found.items() if not commands & writing}
    assert reading <= READING_SCRIPTS, "add these to READING_SCRIPTS of reliq/transport/calls.py"
    assert len(reading) > 10
