"""The page about the fault campaign says what the file of its results says."""

import json
import xml.etree.ElementTree as ET

from tests.campaign.scenarios import SCENARIOS
from tools import reliability


def kept():
    return json.loads(reliability.RESULTS.read_text())


def rows():
    return kept()["rows"]


def test_page_and_picture_are_made_from_the_results():
    assert reliability.PAGE.read_text() == reliability.page(rows(), kept()["notes"])
    assert reliability.PICTURE.read_text() == reliability.picture(rows())
    ET.fromstring(reliability.picture(rows()))


def test_a_row_that_failed_or_fell_short_says_so():
    row = {**rows()[0], "good": False, "done": 3, "full": 7}
    row["verdict"] = {**row["verdict"], "broken": {"lost": 2}, "examples": {"lost": ["some-id"]}}
    page = reliability.page([row])
    assert "**not passed**" in page
    assert "lost: 2 (some-id)" in page
    assert "had 3 of 7" in page


def test_each_row_has_a_known_scenario_and_a_commit():
    known = {one.name for one in SCENARIOS}
    for row in rows():
        assert row["scenario"] in known
        assert row["commit"]
        assert isinstance(row["seed"], int)
