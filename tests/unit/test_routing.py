"""Patterns and routing keys: AMQP's topic exchange."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliq.errors import InvalidName
from reliq.features.topics.routing import Routes, check_pattern, check_routing_key, words_of
from tests.support.properties import examples


def matches(pattern: list[str], words: list[str]) -> bool:
    """The naive reference: as the specification says it, word by word."""
    if not pattern:
        return not words
    first, *rest = pattern
    if first == "#":
        return any(matches(rest, words[taken:]) for taken in range(len(words) + 1))
    return bool(words) and first in ("*", words[0]) and matches(rest, words[1:])


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        ("order.created", "order.created", True),
        ("order.created", "order.created.eu", False),
        ("order.*", "order.created", True),
        ("order.*", "order", False),
        ("order.*", "order.created.eu", False),
        ("*.created", "order.created", True),
        ("order.#", "order", True),
        ("order.#", "order.created.eu", True),
        ("#", "", True),
        ("#", "anything.at.all", True),
        ("*", "", False),
        ("", "", True),
        ("", "order", False),
        ("#.eu", "eu", True),
        ("#.eu", "order.created.eu", True),
        ("#.eu.#", "order.eu.created", True),
        ("*.#", "order", True),
        ("*.#", "", False),
        ("#.*", "order", True),
        ("#.#", "", True),
        ("a..b", "a..b", True),
        ("a.*.b", "a..b", True),
        ("a.b", "a..b", False),
    ],
)
def test_a_pattern_matches_the_keys_that_amqp_says(pattern, key, expected):
    assert Routes([("q", pattern)]).match(key) == (("q",) if expected else ())


_words = st.lists(st.sampled_from(["a", "b", "c", ""]), min_size=0, max_size=6)
_patterns = st.lists(st.sampled_from(["a", "b", "*", "#", ""]), min_size=0, max_size=6)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(_patterns, min_size=1, max_size=8), _words)
def test_the_trie_matches_as_the_naive_reference(patterns, words):
    bindings = [(f"q{place}", ".".join(pattern)) for place, pattern in enumerate(patterns)]
    key = ".".join(words)
    expected = [queue for queue, pattern in bindings if matches(words_of(pattern), words_of(key))]
    assert list(Routes(bindings).match(key)) == sorted(expected)


def test_a_queue_with_two_matching_patterns_is_there_once():
    assert Routes([("q", "order.*"), ("q", "#"), ("p", "*.created")]).match("order.created") == ("p", "q")


def test_many_wildcards_in_a_row_cost_no_search():
    assert Routes([("q", ".".join(["#"] * 100) + ".end")]).match(".".join(["a"] * 120)) == ()


@pytest.mark.parametrize(
    "key", ["order.*", "order.#", "a b", "", ".", "order..x", "order.", ".x", "a\n", "\ud800", "x" * 256, None, 7]
)
def test_bad_routing_keys_are_refused(key):
    with pytest.raises(InvalidName):
        check_routing_key(key)


@pytest.mark.parametrize("pattern", ["order*", "order.#x", "a b", "#.", "x" * 256, None])
def test_bad_patterns_are_refused(pattern):
    with pytest.raises(InvalidName):
        check_pattern(pattern)
