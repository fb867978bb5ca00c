"""Growth: after the life of each feature alone, its keys are gone, or have a time to live."""

from collections.abc import Iterator
from typing import Any

import pytest

from reliq.model.keys import QueueKeys
from tests.combine.entries import ACTS, DEEDS, FACES, LAYOUTS, OPTIONS, SETTINGS, SIZES, UNSET, WAYS
from tests.combine.keys import EXPIRE, GO, STAY
from tests.combine.rows import Row
from tests.combine.run import Runner, running

_PLAIN: Row = {
    "face": "consumer", "way": "send", "outcome": "ack", "act": "nothing", "moment": "held", "size": "small",
    "partitions": 1, "deed": UNSET, "on_failure": "fail", **dict.fromkeys([*OPTIONS, *SETTINGS], UNSET),
}  # fmt: skip
#: What an option or a setting needs beside it.
_NEEDS: dict[str, list[str]] = {
    "window": ["dedup_key"], "replace": ["dedup_key"], "debounce": ["dedup_key", "replace"],
    "at_most": ["dedup_key", "replace", "debounce"], "burst": ["rate"],
}  # fmt: skip


def _features() -> Iterator[tuple[str, Any]]:
    tables: dict[str, Any] = {
        "way": [one for one in WAYS if one != "spark"], "outcome": FACES["consumer"], "act": ACTS, "size": SIZES,
        "partitions": LAYOUTS, "deed": DEEDS, **OPTIONS, **SETTINGS,
    }  # fmt: skip
    for name, values in tables.items():
        yield from ((name, one) for one in values if one not in (UNSET, _PLAIN[name]))


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with running() as one:
        yield one


@pytest.mark.parametrize(("name", "value"), [pytest.param(*one, id=f"{one[0]}={one[1]}") for one in _features()])
def test_a_feature_leaves_no_key_behind(runner: Runner, name: str, value: Any) -> None:
    beside = {one: {**OPTIONS, **SETTINGS}[one][1] for one in _NEEDS.get(name, [])}
    runner.run({**_PLAIN, **beside, name: value})


def test_each_key_of_a_queue_stays_expires_or_goes() -> None:
    keys = QueueKeys("q")
    shorts = {one.removeprefix("reliq:{q}:") for one in keys.everything}
    assert {one for one in shorts if one not in STAY | GO and not one.startswith(EXPIRE)} == set()
