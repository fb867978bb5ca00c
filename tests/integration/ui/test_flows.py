"""The pages about flows."""

from reliq.features.flows.drawing import MOST
from tests.integration.ui.test_pages import text_of


def test_open_flows_are_listed_and_one_is_drawn(client, app):
    assert "No flow is open" in client.get("/flows").text
    with app.flow() as flow:
        parts = [flow.send("parts", number) for number in range(3)]
        flow.send("orders", "end", after=parts, on_failure="skip")
    assert flow.id in text_of(client.get("/flows"))
    page = client.get(f"/flows/{flow.id}")
    assert (page.text.count("<rect "), page.text.count("<line ")) == (4, 3)
    assert "Layer 0 3 open" in text_of(page) and "Layer 1 1 waiting" in text_of(page)
    assert client.get("/flows/0123456789abcdef").status_code == 404


def test_a_flow_that_a_handler_has_opened_is_linked_from_its_message(client, app):
    with app.flow() as flow:
        flow.send("orders", "end", after=flow.send("split", "document"))
    assert "Has opened" not in text_of(client.get(f"/flows/{flow.id}"))
    with app.queue("split").consumer() as consumer:
        (message,) = consumer.claim()
        within = []
        for name in ("pages", "pictures"):
            with app.flow(parent=message, name=name) as inner:
                inner.send("parts", name)
            within.append(inner.id)
        consumer.ack(message)
    page = client.get(f"/flows/{flow.id}")
    assert "Has opened" in text_of(page)
    drawn, table = page.text.split("</svg>")
    for one in within:
        assert f'/flows/{one}"' in drawn and f'/flows/{one}"' in table
        assert "Layer 0 1 open" in text_of(client.get(f"/flows/{one}"))


def test_a_large_flow_is_listed_by_layers_and_not_drawn(client, app):
    with app.flow() as flow:
        flow.send("orders", "end", after=[flow.send("parts", number) for number in range(MOST)])
    page = client.get(f"/flows/{flow.id}")
    assert "<line " not in page.text
    assert f"Layer 0 {MOST} open" in text_of(page) and "The first 100 are shown" in text_of(page)
    assert "and 190 more" in text_of(page)
