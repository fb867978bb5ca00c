// BullMQ as in with_bullmq.mjs, with the protocol of weighed.py and one line more: `fill MESSAGES BYTES`.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(process.env.BENCH_NODE + "/");
const { Queue, Worker } = require("bullmq");

const [role, url] = process.argv.slice(2);
const { hostname: host, port } = new URL(url || "redis://localhost:6379");
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const now = () => Number(process.hrtime.bigint()) / 1e9;
let worker;

const orders = {
  async fill(messages, bytes) {
    const queue = new Queue("bench", { connection });
    const job = { name: "job", data: { body: "x".repeat(bytes) }, opts: { removeOnComplete: true } };
    const many = Math.max(1, Math.min(500, Math.floor(4e6 / bytes)));
    for (let start = 0; start < messages; start += many) {
      await queue.addBulk(Array(Math.min(many, messages - start)).fill(job));
    }
    await queue.close();
  },
  async start() {
    worker = new Worker("bench", async () => {}, { connection, concurrency: 100, autorun: false });
    worker.on("error", (error) => console.error(error.message));
    await worker.waitUntilReady();
  },
  async go(messages) {
    let left = messages;
    const all = new Promise((resolve) => worker.on("completed", () => --left || resolve()));
    worker.run();
    await all;
  },
  async stop() {
    await worker.close(true);
  },
};

if (role === "about") {
  const manifest = readFileSync(process.env.BENCH_NODE + "/node_modules/bullmq/package.json");
  console.log(JSON.stringify({ bullmq: JSON.parse(manifest).version, node: process.version }));
} else {
  for await (const line of createInterface({ input: process.stdin })) {
    const [order, ...numbers] = line.split(" ");
    const began = now(), cpu = process.cpuUsage();
    await orders[order](...numbers.map(Number));
    const used = process.cpuUsage(cpu);
    const peak = Number(readFileSync("/proc/self/status", "utf8").match(/VmHWM:\s+(\d+)/)[1]);
    const answer = { seconds: now() - began, cpu: (used.user + used.system) / 1e6, peak_kib: peak };
    console.log(JSON.stringify(answer));
  }
  process.exit(0);
}
