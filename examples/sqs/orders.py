"""A producer and a consumer with boto3. AWS_ENDPOINT_URL_SQS: the address of `reliq sqs`; the region and the access
key come from where every SDK of AWS finds them."""

import boto3

sqs = boto3.client("sqs")
url = sqs.create_queue(QueueName="orders-py", Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
orders = [{"Id": str(at), "MessageBody": f'{{"order": {at}}}'} for at in range(3)]
sent = sqs.send_message_batch(QueueUrl=url, Entries=orders)
if failed := sent.get("Failed"):  # each entry may fail alone
    raise SystemExit(f"not sent: {failed}")

handled = 0
while handled < len(orders):
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=20)
    for message in answer.get("Messages", []):
        print("shipped", message["Body"])
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        handled += 1
