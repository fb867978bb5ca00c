"""A monitor that lives for months keeps nothing of queues that are gone."""

from reliq import ops
from reliq.model.keys import QueueKeys, instance_queue, new_owner
from reliq.observability.histograms import Measurements
from reliq.protocol.claiming import claim_within
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.deletion import delete
from reliq.transport.store import Store
from tests.support.growth import kept_by
from tests.support.turns import Monitor


def vanish(store, *homes):
    """Claim the messages of these homes, and be gone: the lease is over."""
    for name in homes:
        steps = ConsumerSteps(QueueKeys(name), new_owner(connected=False), 30)
        store.run(claim_within(steps, 10))
        store.call(ops.command("SET", steps.keys.lease(steps.consumer), 1))


def labels(measurements):
    return {label for _, (label,), _, _ in measurements.read()}


def test_a_monitor_keeps_nothing_of_queues_that_come_and_go(app, url):
    measurements = Measurements()
    monitor = Monitor(Store(url), measurements=measurements)

    def come_and_go(name):
        queue = app.queue(name)
        queue.configure(partitions=2)
        queue.send(b"x" * 3000)
        vanish(app.store, name, f"{name}@partition.1")
        queue.send("later", delay=0.001)
        app.schedules.add(name, "1s", name)
        assert monitor.scan().reclaimed == 1
        assert labels(measurements) == {name}
        monitor.promote()
        monitor.send_ticks()
        monitor.tend_partitions()
        monitor.tidy()
        app.store.run(delete(name, force=True))
        monitor.look()
        monitor.send_ticks()  # forgets the tick that it has prepared, if it has
        return kept_by((monitor, measurements))

    before = [come_and_go(f"queue{number}") for number in range(3)][-1]
    after = [come_and_go(f"queue{number}") for number in range(3, 8)][-1]
    assert after < before + 5
    assert labels(measurements) == set()


def test_recoveries_are_those_of_a_queue_and_not_of_its_parts(app, url):
    measurements = Measurements()
    orders = app.queue("orders")
    orders.configure(partitions=2)
    for number in range(2):  # in turn
        orders.send(number)
    instance = instance_queue("mailer", new_owner())
    app.queue(instance, of_broadcast=True).send("x")
    vanish(app.store, "orders", "orders@partition.1", instance)
    assert Monitor(Store(url), measurements=measurements).scan().reclaimed == 3
    assert labels(measurements) == {"orders"}
