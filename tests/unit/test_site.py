"""What the site makes of the pages before anyone reads them: ranks of the search, and the recording of the README."""

import re
from pathlib import Path

from tools.site.hooks import rank_of
from tools.site.recording import PICTURE, drawn

MAKEFILE = Path(__file__).parents[2] / "Makefile"


def test_the_search_ranks_what_to_do_before_how_it_is_defined():
    pages = ["source/tests/x.py.md", "decisions/0001.md", "reference/settings.md", "index.md", "how-to/retries.md"]
    ranks = [rank_of(page) for page in pages]
    assert ranks == sorted(ranks)
    assert rank_of("how-to/flow.md") > rank_of("runbooks/no-workers.md") > rank_of("reference/errors.md")


def test_a_recording_shows_each_line_at_its_time_and_all_at_once_without_motion():
    svg = drawn("reliq demo", [(0.0, "<sent>"), (2.0, "done")])
    assert "&lt;sent&gt;" in svg
    assert "@keyframes l2 { 0%, 25.00% { opacity: 0 } 25.01% { opacity: 1 } }" in svg
    moving = svg.index("prefers-reduced-motion: no-preference")
    assert all(moving < found.start() for found in re.finditer("animation:|opacity", svg))


def test_the_recording_of_the_readme_lost_nothing():
    assert "Nothing was lost." in PICTURE.read_text(encoding="utf-8")


def test_the_site_is_served_with_the_docs_extra_alone():
    recipe = MAKEFILE.read_text(encoding="utf-8").partition("\n$(DOCS):")[2].partition("\n\n")[0]
    assert "--editable '.[docs]'" in recipe
