// BullMQ: one Node process, many jobs at once, nothing kept of those that are done. The same protocol as play.py.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(process.env.BENCH_NODE + "/");
const { Queue, Worker } = require("bullmq");

const [role, url, messages] = process.argv.slice(2);
const expected = Number(messages);
const { hostname: host, port } = new URL(url || "redis://localhost:6379");
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const now = () => Number(process.hrtime.bigint()) / 1e9;

async function fill() {
  const queue = new Queue("bench", { connection });
  const job = { name: "job", data: { body: "x".repeat(200) }, opts: { removeOnComplete: true } };
  for (let start = 0; start < expected; start += 500) {
    await queue.addBulk(Array(Math.min(500, expected - start)).fill(job));
  }
  await queue.close();
}

function consume() {
  let runs = 0, first = 0, last = 0;
  const began = now();
  const handle = async () => {
    last = now();
    if (!runs) first = last;
    runs += 1;
  };
  const worker = new Worker("bench", handle, { connection, concurrency: 100 });
  worker.on("error", (error) => console.error(error.message));
  setInterval(() => {
    const idle = now() - (last || began);
    if (idle > (runs >= expected ? 0.5 : runs ? 6 : 60)) {
      console.log(JSON.stringify({ runs, first, last }));
      process.exit(0);
    }
  }, 100);
}

if (role === "about") {
  const manifest = readFileSync(process.env.BENCH_NODE + "/node_modules/bullmq/package.json");
  const versions = { bullmq: JSON.parse(manifest).version, node: process.version };
  const settings = "concurrency 100, addBulk, removeOnComplete";
  console.log(JSON.stringify({ versions, settings, crash_safe: "yes: after the lock, 30 to 60 s" }));
} else if (role === "fill") {
  await fill();
} else {
  consume();
}
