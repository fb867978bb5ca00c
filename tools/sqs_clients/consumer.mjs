// A consumer of the fault campaign with the SDK of JavaScript: it receives, runs and deletes, and notes all of it, as
// SqsConsumer of tests/campaign/sqs.py does; tests/campaign/history.py says how. Run with one argument, JSON.

import { openSync, writeSync } from "node:fs";

import {
  ChangeMessageVisibilityCommand,
  DeleteMessageCommand,
  ReceiveMessageCommand,
  SQSClient,
} from "@aws-sdk/client-sqs";

const told = JSON.parse(process.argv[2]); // endpoints, queue, visibility, work (seconds), history (a path)
const GIVE_UP = 30; // seconds
const TRUSTED = 0.7; // of its visibility: for so long after a receive a message is handled
const FAIL_DELAY = 1; // seconds

const clients = told.endpoints.map((endpoint) => ({
  QueueUrl: `${endpoint}/000000000000/${told.queue}`,
  sqs: new SQSClient({
    endpoint,
    region: "us-east-1",
    credentials: { accessKeyId: "x", secretAccessKey: "x" },
    maxAttempts: 1,
    requestHandler: { connectionTimeout: 5_000, requestTimeout: 10_000 },
  }),
}));

const file = openSync(told.history, "a");
const now = () => Number(process.hrtime.bigint()) / 1e9; // CLOCK_MONOTONIC, as Python's
const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
let calls = 0;
let stopping = false;
process.on("SIGTERM", () => (stopping = true));
const parent = process.ppid;
setInterval(() => process.ppid !== parent && process.exit(1), 500).unref();

function note(f, s, fields) {
  writeSync(file, JSON.stringify({ t: now(), f, s, ...fields }) + "\n");
}

function invoke(f, fields) {
  const call = calls++;
  note(f, "invoke", { call, thread: process.pid, ...fields });
  return (s, more) => note(f, s, { call, ...more });
}

class Unknown extends Error {}

// Call an action, again until it is answered; throws Unknown, or what the endpoint refused.
async function ask(Command, fields) {
  const until = now() + GIVE_UP;
  for (;;) {
    const { sqs, QueueUrl } = clients[Math.floor(Math.random() * clients.length)];
    try {
      return await sqs.send(new Command({ QueueUrl, ...fields }));
    } catch (error) {
      const status = error.$metadata?.httpStatusCode;
      if (status >= 400 && status < 500) throw error;
      if (now() > until) throw new Unknown(String(error));
      await sleep(0.1);
    }
  }
}

async function settle(message, to, Command, fields) {
  const id = message.MessageId;
  const ends = invoke("settle", { ids: [id], to: [to], delays: to === "delayed" ? { [id]: FAIL_DELAY } : {} });
  try {
    await ask(Command, { ReceiptHandle: message.ReceiptHandle, ...fields });
    ends("ok", { codes: "d" });
  } catch (error) {
    if (!(error instanceof Unknown)) ends("ok", { codes: "l" });
  }
}

async function handle(message) {
  const task = JSON.parse(message.Body);
  const ends = invoke("run", { id: message.MessageId, name: task.name });
  await sleep(told.work);
  if (task.do === "fail" && message.Attributes.ApproximateReceiveCount === "1") {
    ends("fail", { then: "retried" });
    await settle(message, "delayed", ChangeMessageVisibilityCommand, { VisibilityTimeout: FAIL_DELAY });
  } else {
    ends("ok");
    await settle(message, "ack", DeleteMessageCommand, {});
  }
}

while (!stopping) {
  const since = now();
  let answer;
  try {
    answer = await ask(ReceiveMessageCommand, {
      MaxNumberOfMessages: 10,
      WaitTimeSeconds: 1,
      VisibilityTimeout: told.visibility,
      AttributeNames: ["All"],
    });
  } catch (error) {
    if (error instanceof Unknown) continue;
    throw error;
  }
  const messages = answer.Messages ?? [];
  if (messages.length) note("claim", "ok", { since, ids: messages.map((one) => one.MessageId) });
  for (const one of messages) {
    if (now() - since > told.visibility * TRUSTED) break; // the rest becomes visible again
    await handle(one);
  }
}
process.exit(0);
