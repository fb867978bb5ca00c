"""The keywords of dead letters and of a queue's policy are declared once, and unknown ones are refused."""

import asyncio
import dataclasses
import inspect

import pytest

import reliq
from reliq import ConfigChanges, DeadLetterFilters, aio
from reliq.contract.settings import BY_NAME
from reliq.protocol.dead_letters import Filter

NOWHERE = "redis://localhost:1"
CALLS = ["list", "redrive", "purge"]


def test_the_declared_filters_are_those_of_a_filter():
    assert DeadLetterFilters.__optional_keys__ == {field.name for field in dataclasses.fields(Filter)}


def test_the_declared_changes_are_the_settings_of_a_queue():
    assert ConfigChanges.__optional_keys__ == set(BY_NAME)


@pytest.mark.parametrize("call", CALLS)
def test_an_unknown_filter_is_refused_before_anything_is_asked(call):
    says = "unexpected keyword argument 'colour'; the filters of this call are error_class, error_text, headers, ids"
    with pytest.raises(TypeError, match=says):
        getattr(reliq.Reliq(NOWHERE).queue("q").dead, call)(colour="red")

    async def ask():
        await getattr(aio.Reliq(NOWHERE).queue("q").dead, call)(colour="red")

    with pytest.raises(TypeError, match=says):
        asyncio.run(ask())


def test_none_is_no_filter():
    filters: DeadLetterFilters = {
        "ids": None, "reason": None, "error_class": None, "older_than": None, "newer_than": None, "headers": None,
    }  # fmt: skip
    assert Filter.of(filters).empty


@pytest.mark.parametrize("face", [reliq, aio])
@pytest.mark.parametrize(
    ("owner", "name", "declared"),
    [*(("DeadLetters", call, DeadLetterFilters) for call in CALLS), ("Queue", "configure", ConfigChanges)],
)
def test_a_call_takes_the_declared_keywords(face, owner, name, declared):
    parameters = inspect.signature(getattr(getattr(face, owner), name)).parameters.values()
    (keywords,) = [one for one in parameters if one.kind is one.VAR_KEYWORD]
    assert keywords.annotation.__args__ == (declared,)
