from urllib.parse import parse_qsl

import pytest

from reliq.errors import InvalidSetting
from reliq_api.ui.search import Search

FIELDS = [
    ("reason", "max_failures"), ("error", "ValueError"), ("header", "tenant=a&b=c"), ("newer", "1h"), ("older", "15m"),
    ("id", "1"), ("id", "2"),
]  # fmt: skip


def test_a_search_survives_its_own_query_string_and_form():
    search = Search.read(FIELDS)
    assert Search.read(parse_qsl(search.query()[1:])) == search
    assert Search.read(search.fields()) == search


def test_a_search_becomes_the_filter_of_the_library():
    assert Search.read(FIELDS).filters() == {
        "reason": "max_failures",
        "error_class": "ValueError",
        "headers": {"tenant": "a&b=c"},
        "newer_than": "1h",
        "older_than": "15m",
        "ids": ("1", "2"),
    }


def test_empty_fields_and_strange_ones_ask_for_nothing():
    search = Search.read([("reason", ""), ("error", " "), ("id", ""), ("all", "1")])
    assert search.filters() == {}
    assert search.query() == ""
    assert search.sentence() == "every dead letter of the queue"


def test_the_sentence_of_a_search_names_every_condition():
    assert Search.read(FIELDS).sentence() == (
        "2 chosen letters; reason max_failures; last error ValueError; header tenant=a&b=c; "
        "died in the last 1h; died more than 15m ago"
    )


def test_another_reason_replaces_the_one_of_the_search():
    assert Search(reason="expired", error="E").query(reason="decode") == "?error=E&reason=decode"


def test_a_header_without_a_value_is_refused():
    with pytest.raises(InvalidSetting, match="name=value"):
        Search(header="tenant").filters()


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("dead", "older_than=1d"), ("dead", "headers=tenant%3Da"), ("dead/purge", "older_than=1d"),
        ("dead/redrive", "x="), ("delayed", "error_class=ValueError"), ("delayed", "older=1d"),
    ],
)  # fmt: skip
def test_a_filter_that_a_page_does_not_have_is_refused(client, app, path, query):
    """Without it the page would list all, and its buttons act on all."""
    app.queue("orders").send("x")
    answer = client.get(f"/queues/orders/{path}?{query}")
    assert answer.status_code == 422
    assert "there is no filter" in answer.text
