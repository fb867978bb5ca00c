"""The dashboards: current, explained, and nothing to click before they work."""

import json

import pytest
from grafana_dashboards.__main__ import PAGES, files

FILES = files()
PAGE_OF = {path.stem: json.loads(path.read_text()) for path in FILES if path.exists()}
PANELS = [panel for page in PAGE_OF.values() for panel in page["panels"] if panel["type"] != "row"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_json_is_what_the_python_says(path):
    """If not: cd monitor && python -m grafana_dashboards."""
    assert path.read_text() == FILES[path]


def test_there_are_four_and_no_others():
    assert len(PAGES) == 4
    (folder,) = {path.parent for path in FILES}
    assert set(folder.iterdir()) == set(FILES)


def test_a_panel_says_what_it_shows_and_in_which_unit():
    for panel in PANELS:
        assert panel["title"], panel
        assert len(panel["description"]) > 15, panel
        assert panel["fieldConfig"]["defaults"]["unit"], panel


def test_a_panel_asks_the_data_source_that_was_chosen():
    for panel in PANELS:
        assert panel["targets"], panel
        for one in (panel, *panel["targets"]):
            assert one["datasource"]["uid"] == "${datasource}", panel


@pytest.mark.parametrize("name", PAGE_OF)
def test_data_source_and_queue_can_be_chosen_and_are_chosen_already(name):
    source, queue = PAGE_OF[name]["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == ("datasource", "datasource", "prometheus")
    assert (queue["name"], queue["current"]["value"], queue["allValue"]) == ("queue", "$__all", ".*")


@pytest.mark.parametrize("name", PAGE_OF)
def test_panels_have_ids_of_their_own_and_do_not_overlap(name):
    panels = PAGE_OF[name]["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_a_runbook_that_is_named_exists(root):
    named = [path for panel in PANELS if (path := panel["description"].partition("Runbook: ")[2])]
    assert named
    assert [path for path in named if not (root / path).is_file()] == []
