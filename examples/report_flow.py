"""A report as a flow: pages are fetched side by side, one is missing, and the summary goes on without it.

`split` finds out how many pages there are and opens a flow within the flow (fan-out); `summary` takes what their
handlers return (fan-in); `notify` waits for all of it. Without a server: `reliq.testing` has one of its own.

    python examples/report_flow.py
"""

from dataclasses import dataclass

import reliq
from reliq.testing import Bench

app = reliq.Reliq()
told: list[str] = []


@dataclass
class Document:
    pages: int


@dataclass
class Page:
    number: int


@dataclass
class Words:
    page: int
    count: int


@app.handler("split")
def split(document: Document, message: reliq.Message) -> None:
    with app.flow(parent=message) as flow:
        pages = [flow.send("pages", Page(number)) for number in range(1, document.pages + 1)]
        flow.send("summary", {}, after=pages, on_failure="run")  # also without a page that cannot be read


@app.handler("pages", result="1d")
def count(page: Page) -> Words:
    if page.number == 3:
        raise reliq.Dead("page 3 cannot be read")
    return Words(page.number, 100 * page.number)


@app.handler("summary")
def summary(pages: reliq.Results[Words]) -> None:
    read = [one for one in pages if one is not None]
    told.append(f"{sum(one.count for one in read)} words on {len(read)} of {len(pages)} pages")


@app.handler("notify")
def notify(message: reliq.Message) -> None:
    told.append(f"{message.body.decode()} is told")


def main() -> None:
    with Bench(app) as bench:
        with app.flow() as flow:
            first = flow.send("split", Document(pages=5))
            flow.send("notify", "ann", after=first)
        bench.work_off()
        print(*told, sep="\n")
        progress = app.flow_progress(flow.id)
        print(", ".join(f"{one.queue}: {one.state}" for one in (progress.members if progress else ())))


if __name__ == "__main__":
    main()
