"""Flows from the command line."""

import json
import re


def test_flows_within_a_flow_are_shown_below_the_message_that_opened_them(say, app):
    with app.flow() as flow:
        last = flow.send("orders", "end", after=flow.send("split", "document"))
    with app.queue("split").consumer() as consumer:
        (cut,) = consumer.claim()
        with app.flow(parent=cut) as pages:
            page = pages.send("pages", 1)
        consumer.ack(cut)
    with app.queue("pages").consumer() as consumer:
        (message,) = consumer.claim()
        with app.flow(parent=message) as words:
            word = words.send("words", 1)
        consumer.ack(message)
    status, out, _ = say("flow", "show", flow.id)
    lines = [re.sub(r"age=.*", "age=", one) for one in out.splitlines()]
    bar = "[....................]   0%  messages=1 open=1  age="
    assert (status, lines[2:]) == (0, [
        "layer 0: 1 open",
        f"  #0    open       split  {cut.id}  opened {pages.id}",
        f"      {pages.id}  open       {bar}",
        f"        #0    open       pages  {page.id}  opened {words.id}",
        f"            {words.id}  open       {bar}",
        f"              #0    open       words  {word.id}",
        "",
        "layer 1: 1 waiting",
        f"  #1    waiting    orders  {last.id}  after #0 (on failure: fail)",
    ])  # fmt: skip


def test_flows_are_listed_shown_and_cancelled(say, app):
    assert say("flow", "list") == (0, "", "no open flows\n")
    with app.flow() as flow:
        parts = [flow.send("parts", number) for number in range(60)]
        end = flow.send("orders", "end", after=parts, on_failure="run")
    status, out, _ = say("flow", "list")
    line = f"{flow.id}  open       [....................]   0%  messages=61 open=61  age="
    assert (status, re.sub(r"age=.*\n", "age=", out)) == (0, line)
    status, out, _ = say("flow", "show", flow.id)
    lines = out.splitlines()
    assert (status, lines[2], lines[-3:]) == (0, "layer 0: 60 open", [
        "", "layer 1: 1 waiting",
        f"  #60   waiting    orders  {end.id}  after #0 #1 #2 #3 #4 and 55 more (on failure: run)",
    ])  # fmt: skip
    assert "  and 10 more" in lines
    assert len(json.loads(say("flow", "show", flow.id, "--json")[1])["members"]) == 61
    assert [one["id"] for one in json.loads(say("flow", "list", "--json")[1])] == [flow.id]
    assert say("flow", "cancel", flow.id)[:2] == (0, f"flow {flow.id} is cancelled\n")
    assert app.queue("orders").stats().waiting == app.queue("parts").stats().ready == 0
    assert say("flow", "show", "0123456789abcdef", "--json")[:2] == (1, "null\n")
    for words in (("show", "0123456789abcdef"), ("cancel", "0123456789abcdef")):
        status, out, err = say("flow", *words)
        assert (status, out) == (1, "")
        assert "there is no flow 0123456789abcdef that is open: it has ended, was given up, or never existed" in err
