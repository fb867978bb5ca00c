"""An agent streams its answer word by word to its readers; its worker is killed half way.

All agents share a budget of tokens: a question reserves its highest cost when it starts, and is then charged its actual
cost. The second run does not search again, because the search was a step. It begins the answer anew, under a higher run
number, and Redis refuses what the first run may still write.

    python examples/agent_stream.py
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import reliq
from reliq.embedded import EmbeddedRedis

ANSWER = ["Air", "scatters", "blue", "light", "more", "than", "red", "light,", "so", "the", "sky", "is", "blue."]
app = reliq.Reliq()


def search(question: str) -> list[str]:
    print(f"searching for {question!r}", flush=True)
    return ["https://example.org/rayleigh"]


@app.handler("questions")
def answer(message: reliq.Message) -> None:
    sources = message.step("search", search, message.json()["question"])
    for word in ANSWER:  # as a language model would give them
        time.sleep(0.1)
        message.emit(word + " ")
    message.charge(100 * len(ANSWER))  # as the model says
    message.emit(f"({', '.join(sources)})\n")


def worker(url: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "reliq", "worker", "agent_stream:app", "--quiet", "--lease", "2"]
    return subprocess.Popen(command, cwd=Path(__file__).parent, env={**os.environ, "RELIQ_URL": url})


def main(url: str) -> None:
    questions = reliq.Reliq(url).queue("questions")
    questions.configure(rate="100000/min", burst=10_000)
    question = questions.send({"question": "Why is the sky blue?"}, cost=3000)
    process, run = worker(url), 1
    for number, chunk in enumerate(questions.output(question), 1):
        if chunk.run != run:
            run = chunk.run
            print("... the agent begins again:")
        print(chunk.value, end="", flush=True)
        if number == 4:
            process.kill()
            process.wait()
            process = worker(url)
    process.terminate()
    process.wait()
    print(f"the answer is whole, in run {run}")


if __name__ == "__main__":
    with EmbeddedRedis() as redis:
        main(redis.url)
