"""Back-offs and durations: pure functions."""

import math
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliq import Dead, InvalidSetting, Retry, exponential, fixed, rocketmq_levels, steps
from reliq.contract.values import DURATION, seconds
from reliq.model.policy import Policy, error_classes

ERROR = ValueError("boom")


def delays(backoff, upto=30):
    return [backoff(failures, ERROR) for failures in range(1, upto)]


def test_fixed_is_the_same_each_time_up_to_its_limit():
    assert delays(fixed("30s", limit=3), 6) == [30.0, 30.0, 30.0, None, None]


def test_steps_go_one_after_another():
    assert delays(steps("10s", "100s", "1h", "2h", "10h"), 8) == [10, 100, 3600, 7200, 36000, None, None]


def test_exponential_grows_to_its_cap():
    backoff = exponential(first=10, factor=3, jitter=0, cap="5m", limit=6)
    assert delays(backoff, 9) == [10, 30, 90, 270, 300, 300, None, None]


@given(st.integers(1, 10_000))
def test_jitter_stays_within_its_share(failures):
    delay = exponential(first=10, factor=2, jitter=0.2, cap=1000, limit=10_000)(failures, ERROR)
    plain = min(1000, 10 * 2 ** min(failures - 1, 64))
    assert 0.8 * plain <= delay <= 1.2 * plain


def test_jitter_really_spreads():
    assert len({exponential()(1, ERROR) for _ in range(100)}) > 90


def test_the_levels_of_rocketmq():
    found = delays(rocketmq_levels(), 18)
    assert found[:4] == [10, 30, 60, 120]
    assert found[15] == 7200
    assert found[16] is None


@pytest.mark.parametrize(
    "bad",
    [
        lambda: fixed(-1),
        lambda: fixed("1 fortnight"),
        lambda: fixed(1, limit=-1),
        lambda: fixed(1, limit=2.5),  # type: ignore[arg-type]
        steps,
        lambda: steps("10s", math.nan),
        lambda: exponential(factor=0.5),
        lambda: exponential(jitter=1.5),
        lambda: exponential(first=math.inf),
        lambda: exponential(limit=True),
        *(lambda wrong=wrong: exponential(factor=wrong) for wrong in ("x", None, True, Decimal("1.5"), math.nan)),
        *(lambda wrong=wrong: exponential(jitter=wrong) for wrong in ("x", None, True, Decimal("0.5"), math.nan)),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_written(bad):
    with pytest.raises(InvalidSetting):
        bad()


@pytest.mark.parametrize(
    ("text", "value"), [("90s", 90), ("1.5h", 5400), ("250ms", 0.25), ("2d", 172_800), ("10", 10), (" 5 m ", 300)]
)
def test_durations(text, value):
    assert seconds(text, "x") == value
    assert re.fullmatch(DURATION, text.strip())  # as schemas tell it


@pytest.mark.parametrize("text", ["", "s", "-1s", "1e9", "99999999", "1w", "5 minutes", "٣s"])
def test_what_is_no_duration(text):
    with pytest.raises(InvalidSetting, match="x is"):
        seconds(text, "x", longest=1e6)
    assert text == "99999999" or not re.fullmatch(DURATION, text)


def test_a_whole_number_that_is_too_large_for_a_float_is_no_duration():
    with pytest.raises(InvalidSetting, match="it must be between"):
        seconds(10**400, "x")


def test_a_policy_per_exception_class():
    policy = Policy(fixed(5, limit=2), retry_on=(OSError,), dead_on=(FileNotFoundError,))
    assert not policy.rejects(TimeoutError())
    assert policy.rejects(FileNotFoundError())
    assert policy.rejects(KeyError())
    assert policy.rejects(Dead("no"))
    assert not policy.rejects(Retry())


@pytest.mark.parametrize("given", [OSError, (OSError,), [OSError], {OSError}], ids=repr)
def test_exception_classes_come_one_by_one_or_in_any_collection(given):
    assert error_classes(given, "dead_on") == (OSError,)


def test_retry_overrides_the_delay_but_not_the_limit():
    policy = Policy(fixed(5, limit=2))
    assert policy.delay(1, Retry(delay="1h")) == 3600
    assert policy.delay(1, Retry()) == 5
    assert policy.delay(3, Retry(delay="1h")) is None


def test_any_function_is_a_backoff():
    policy = Policy(lambda failures, error: None if isinstance(error, KeyError) else failures * 2.0)
    assert policy.delay(3, ERROR) == 6.0
    assert policy.delay(1, KeyError()) is None
