"""An application with a handler that sends on, for the test that follows a trace through several processes."""

import reliq

app = reliq.Reliq()


@app.handler("orders")
def ship(message: reliq.Message) -> None:
    app.queue("mails").send(b"shipped")
