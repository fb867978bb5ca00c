// A producer and a consumer with the SDK of JavaScript (npm install @aws-sdk/client-sqs). AWS_ENDPOINT_URL_SQS: the
// address of `reliq sqs`; the region and the access key come from where every SDK of AWS finds them.
import {
  CreateQueueCommand,
  DeleteMessageCommand,
  ReceiveMessageCommand,
  SendMessageBatchCommand,
  SQSClient,
} from "@aws-sdk/client-sqs";

const sqs = new SQSClient();
const { QueueUrl } = await sqs.send(
  new CreateQueueCommand({ QueueName: "orders-mjs", Attributes: { VisibilityTimeout: "60" } }),
);
const Entries = [0, 1, 2].map((at) => ({ Id: `${at}`, MessageBody: JSON.stringify({ order: at }) }));
const { Failed } = await sqs.send(new SendMessageBatchCommand({ QueueUrl, Entries }));
if (Failed?.length) throw new Error(`not sent: ${JSON.stringify(Failed)}`); // each entry may fail alone

let handled = 0;
while (handled < Entries.length) {
  const answer = await sqs.send(
    new ReceiveMessageCommand({ QueueUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 20 }),
  );
  for (const { Body, ReceiptHandle } of answer.Messages ?? []) {
    console.log("shipped", Body);
    await sqs.send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle }));
    handled += 1;
  }
}
