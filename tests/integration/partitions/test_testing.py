"""The bench for tests runs the messages of all partitions."""

import reliq
from reliq.testing import work_off


def test_all_partitions_are_worked_off(app: reliq.Reliq) -> None:
    app.queue("orders").configure(partitions=4)
    handled: list[str] = []
    app.handler("orders")(lambda message: handled.append(message.id))
    sent = [app.queue("orders").send("x", key=f"k{number}") for number in range(40)]
    assert work_off(app) == 40
    assert sorted(handled) == sorted(sent)
    assert app.queue("orders").stats().counters["acked"] == 40
