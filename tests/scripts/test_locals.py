"""Lua takes 200 locals of a script, with those of the shared files that it uses."""

from pathlib import Path

import pytest

from reliq.ops.request import script_named

ROOT = Path(__file__).parents[2] / "reliq"
SCRIPTS = [path.stem for path in (ROOT / "lua").glob("*.lua")] + [
    f"{path.parents[1].name}/{path.stem}" for path in (ROOT / "features").glob("*/lua/*.lua")
]
ROOM = 3  #: the simulation adds one


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_a_script_has_room_for_a_few_more(world, name):
    more = ", ".join(f"more_{number}" for number in range(ROOM))
    world.redis.script_load(f"local {more}\n{script_named(name).source}")
