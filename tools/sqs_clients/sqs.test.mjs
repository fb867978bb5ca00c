// The SDK of JavaScript and sqs-consumer against `reliq sqs`; run by tools/test_sqs.py.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";

import {
  ChangeMessageVisibilityCommand,
  CreateQueueCommand,
  DeleteMessageCommand,
  GetQueueAttributesCommand,
  QueueDoesNotExist,
  ReceiveMessageCommand,
  SendMessageBatchCommand,
  SendMessageCommand,
  SQSClient,
} from "@aws-sdk/client-sqs";
import { Consumer } from "sqs-consumer";

const sqs = new SQSClient({
  endpoint: process.env.SQS_ENDPOINT,
  region: "us-east-1",
  credentials: { accessKeyId: "test", secretAccessKey: "test" },
});

async function queue(attributes = {}, suffix = "") {
  const made = await sqs.send(
    new CreateQueueCommand({ QueueName: randomUUID() + suffix, Attributes: attributes }),
  );
  return made.QueueUrl;
}

async function send(QueueUrl, count) {
  for (let first = 0; first < count; first += 10) {
    const Entries = Array.from({ length: 10 }, (_, at) => ({
      Id: `m${at}`,
      MessageBody: `${first + at}`,
    }));
    const sent = await sqs.send(new SendMessageBatchCommand({ QueueUrl, Entries }));
    assert.equal(sent.Successful.length, 10);
  }
}

async function consumed(QueueUrl, count, options) {
  const bodies = [];
  const consumer = Consumer.create({ queueUrl: QueueUrl, sqs, waitTimeSeconds: 1, ...options(bodies) });
  const errors = [];
  for (const name of ["error", "processing_error", "timeout_error"]) {
    consumer.on(name, (error) => errors.push(error));
  }
  consumer.start();
  const until = Date.now() + 30_000;
  while (bodies.length < count && Date.now() < until) {
    await new Promise((done) => setTimeout(done, 20));
  }
  const stopped = new Promise((done) => consumer.on("stopped", done));
  consumer.stop();
  await stopped;
  assert.deepEqual(errors, []);
  return bodies;
}

async function counts(QueueUrl) {
  const { Attributes } = await sqs.send(
    new GetQueueAttributesCommand({ QueueUrl, AttributeNames: ["All"] }),
  );
  return [Attributes.ApproximateNumberOfMessages, Attributes.ApproximateNumberOfMessagesNotVisible];
}

test("a message goes through the SDK, which compares the digests", async () => {
  const QueueUrl = await queue();
  const MessageAttributes = {
    tenant: { DataType: "String", StringValue: "härz" },
    raw: { DataType: "Binary", BinaryValue: new Uint8Array([0, 1, 255]) },
  };
  await sqs.send(new SendMessageCommand({ QueueUrl, MessageBody: "hällo 😀", MessageAttributes }));
  const { Messages } = await sqs.send(
    new ReceiveMessageCommand({ QueueUrl, MessageAttributeNames: ["All"], WaitTimeSeconds: 5 }),
  );
  assert.equal(Messages[0].Body, "hällo 😀");
  assert.equal(Messages[0].MessageAttributes.tenant.StringValue, "härz");
  assert.deepEqual([...Messages[0].MessageAttributes.raw.BinaryValue], [0, 1, 255]);
  const { ReceiptHandle } = Messages[0];
  await sqs.send(new ChangeMessageVisibilityCommand({ QueueUrl, ReceiptHandle, VisibilityTimeout: 60 }));
  await sqs.send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle }));
  assert.deepEqual(await counts(QueueUrl), ["0", "0"]);
});

test("an error of the model is the class of the SDK", async () => {
  const QueueUrl = `${process.env.SQS_ENDPOINT}/000000000000/nothing`;
  await assert.rejects(sqs.send(new SendMessageCommand({ QueueUrl, MessageBody: "x" })), (error) => {
    assert(error instanceof QueueDoesNotExist);
    assert.equal(error.message, "The specified queue does not exist.");
    assert.equal(error.$metadata.httpStatusCode, 400);
    return true;
  });
});

test("sqs-consumer handles one message after another", async () => {
  const QueueUrl = await queue();
  await send(QueueUrl, 30);
  const bodies = await consumed(QueueUrl, 30, (seen) => ({
    handleMessage: async (message) => {
      seen.push(message.Body);
      return message;
    },
  }));
  assert.equal(new Set(bodies).size, 30);
  assert.deepEqual(await counts(QueueUrl), ["0", "0"]);
});

test("sqs-consumer handles batches, and extends what takes long", async () => {
  const QueueUrl = await queue({ VisibilityTimeout: "2" });
  await send(QueueUrl, 20);
  const bodies = await consumed(QueueUrl, 20, (seen) => ({
    batchSize: 10,
    visibilityTimeout: 2,
    heartbeatInterval: 1,
    handleMessageBatch: async (messages) => {
      await new Promise((done) => setTimeout(done, 2500));
      seen.push(...messages.map((one) => one.Body));
      return messages;
    },
  }));
  assert.equal(bodies.length, 20);
  assert.equal(new Set(bodies).size, 20);
  assert.deepEqual(await counts(QueueUrl), ["0", "0"]);
});

test("sqs-consumer handles a FIFO queue in order", async () => {
  const QueueUrl = await queue({ FifoQueue: "true", ContentBasedDeduplication: "true" }, ".fifo");
  for (let at = 0; at < 20; at++) {
    await sqs.send(new SendMessageCommand({ QueueUrl, MessageBody: `${at}`, MessageGroupId: "g" }));
  }
  const bodies = await consumed(QueueUrl, 20, (seen) => ({
    batchSize: 10,
    handleMessage: async (message) => {
      seen.push(message.Body);
      return message;
    },
  }));
  assert.deepEqual(bodies, Array.from({ length: 20 }, (_, at) => `${at}`));
});
