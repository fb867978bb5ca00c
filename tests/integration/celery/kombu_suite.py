"""kombu's own integration suite on reliq. `test_suites` runs it, in a process where `t` is kombu's test folder."""

import os

import kombu
import pytest
from t.integration import common
from t.integration import test_redis as of_redis

import reliq.contrib.kombu  # noqa: F401  registers the transport


@pytest.fixture
def connection():
    return kombu.Connection(os.environ["TEST_BROKER"])


@pytest.fixture
def invalid_connection():
    return kombu.Connection("reliq+redis://127.0.0.1:1")


class TestBasicFunctionality(common.BasicFunctionality):
    pass


class TestExchangeTypes(common.BaseExchangeTypes):
    pass


class TestMessage(common.BaseMessage):
    pass


class TestTimeToLive(common.BaseTimeToLive):
    pass


class TestEventLoop(common.BaseEventLoop):
    pass


class TestPriority(common.BasePriority):
    """As for kombu's Redis transport: 0 is the first, and drain_events delivers one message."""

    PRIORITY_ORDER = "desc"
    test_publish_consume = of_redis.test_RedisPriority.test_publish_consume
    test_publish_requeue_consume = of_redis.test_RedisPriority.test_publish_requeue_consume
