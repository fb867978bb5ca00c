"""The examples of Celery's guide to its canvas, as flows (docs/migration/celery.md)."""

import pytest

import reliq
from tests.support.handlers import settled
from tests.support.workers import eventually, working


@pytest.fixture
def canvas(app):
    """Handlers such as the tasks of the guide: arguments follow what the messages before have returned."""

    @app.handler("add", result="1h")
    def add(message):
        return sum([*message.results(), *message.json()])

    @app.handler("mul", result="1h")
    def mul(message):
        (before,) = message.results()
        return before * message.json()[0]

    @app.handler("tsum", result="1h")
    def tsum(numbers: reliq.Results[int]):
        return sum(numbers)

    @app.handler("xsum", result="1h")
    def xsum(message):
        return [sum(one) for one in message.json()]

    @app.handler("fails")
    def fails(message):
        raise reliq.Dead("as it should")

    return app


def results(app, *sent):
    """Let workers handle everything, and return what the handlers of these have returned."""
    with working(app, threads=4, monitor=True):
        eventually(lambda: not app.flows())
        return [app.queue(one.queue).result(one.id) for one in sent]


def test_a_chain(canvas):
    """chain(add.s(2, 2), add.s(4), add.s(8))().get() == 16."""
    with canvas.flow() as flow:
        first = flow.send("add", [2, 2])
        second = flow.send("add", [4], after=first)
        third = flow.send("add", [8], after=second)
    assert results(canvas, first, second, third) == [4, 8, 16]


def test_a_task_of_chains_alone(canvas):
    """add.delay(2, 2).get() == 4."""
    queue = canvas.queue("add")
    with working(canvas):
        assert queue.result(queue.send([2, 2]), wait=10) == 4


def test_a_chain_of_other_tasks(canvas):
    """(add.s(4, 4) | mul.s(8) | mul.s(10))().get() == 640."""
    with canvas.flow() as flow:
        end = flow.send("mul", [10], after=flow.send("mul", [8], after=flow.send("add", [4, 4])))
    assert results(canvas, end) == [640]


def test_a_group(canvas):
    """group(add.s(i, i) for i in range(10))().get() == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]."""
    with canvas.flow() as flow:
        group = [flow.send("add", [number, number]) for number in range(10)]
    assert results(canvas, *group) == [2 * number for number in range(10)]


def test_a_chord(canvas):
    """chord((add.s(i, i) for i in range(100)), tsum.s())().get() == 9900."""
    with canvas.flow() as flow:
        header = [flow.send("add", [number, number]) for number in range(100)]
        body = flow.send("tsum", "", after=header)
    assert results(canvas, body) == [9900]


def test_a_group_in_a_chain_becomes_a_chord(canvas):
    """(add.s(4, 16) | group(mul.s(2), mul.s(3)) | tsum.s())(): 20 * 2 + 20 * 3."""
    with canvas.flow() as flow:
        first = flow.send("add", [4, 16])
        group = [flow.send("mul", [factor], after=first) for factor in (2, 3)]
        end = flow.send("tsum", "", after=group)
    assert results(canvas, end) == [100]


def test_a_chord_behind_a_chord(canvas):
    """A chain of groups: (group(...) | tsum.s() | group(...) | tsum.s())()."""
    with canvas.flow() as flow:
        first = flow.send("tsum", "", after=[flow.send("add", [number]) for number in range(5)])
        second = [flow.send("mul", [factor], after=first) for factor in (1, 10)]
        end = flow.send("tsum", "", after=second)
    assert results(canvas, first, end) == [10, 110]


def test_map_and_chunks(canvas):
    """xsum.map([range(10), range(100)]) is one task, and add.chunks(zip(range(100), range(100)), 10) are ten."""
    with canvas.flow() as flow:
        mapped = flow.send("xsum", [[*range(10)], [*range(100)]])
        pairs = [[number, number] for number in range(100)]
        chunks = [flow.send("xsum", pairs[start : start + 10]) for start in range(0, 100, 10)]
    first, *others = results(canvas, mapped, *chunks)
    assert (first, [number for part in others for number in part]) == ([45, 4950], [2 * one for one in range(100)])


def test_an_immutable_signature_takes_no_result(canvas):
    """(add.s(2, 2) | xsum.si([[1, 2]]))(): the second one is told nothing of the first."""
    with canvas.flow() as flow:
        end = flow.send("xsum", [[1, 2]], after=flow.send("add", [2, 2]))
    assert results(canvas, end) == [[3]]


def test_an_error_callback_runs_behind_a_failure(canvas):
    """chord([add.s(2, 2), fails.s()], tsum.s().on_error(...)): one that runs anyway takes the place of both."""
    with canvas.flow() as flow:
        header = [flow.send("add", [2, 2]), flow.send("fails", "")]
        body = flow.send("tsum", "", after=header, on_failure="skip")
        error = flow.send("xsum", [[1]], after=body, on_failure="run")
    with working(canvas, threads=4, monitor=True):
        eventually(lambda: [one.state for one in canvas.flow_progress(flow.id).members][2:] == ["skipped", "handled"])
        assert canvas.queue("xsum").result(error.id) == [1]


@pytest.mark.parametrize(("task", "before"), [("add", [4]), ("fails", [None])])
def test_what_takes_the_place_of_an_error_callback_sees_whether_there_is_an_error(canvas, task, before):
    """add.apply_async((2, 2), link_error=...) runs nothing more after a success; a message behind it does."""

    @canvas.handler("error", result="1h")
    def error(message):
        return message.results()

    with canvas.flow() as flow:
        last = flow.send("error", "", after=flow.send(task, [2, 2]), on_failure="run")
    with working(canvas, monitor=True):
        assert canvas.queue("error").result(last.id, wait=10) == before


def test_a_task_that_replaces_itself_by_a_canvas(canvas):
    """self.replace(group(...) | tsum.s()) in the middle of a chain: a flow within the flow."""

    @canvas.handler("split")
    def split(message):
        with canvas.flow(parent=message) as flow:
            flow.send("tsum", "", after=[flow.send("add", [number]) for number in message.json()])

    done: list[int] = []

    @canvas.handler("end")
    def end(message):
        done.append(canvas.queue("tsum").stats().counters["acked"])

    with canvas.flow() as flow:
        flow.send("end", "", after=flow.send("split", [1, 2, 3]))
    results(canvas)
    assert done == [1]
    assert settled(canvas, "tsum")
