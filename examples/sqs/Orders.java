// A producer and a consumer with the SDK of Java, version 2 (software.amazon.awssdk:sqs). AWS_ENDPOINT_URL_SQS: the
// address of `reliq sqs`; the region and the access key come from where every SDK of AWS finds them.
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.model.Message;
import software.amazon.awssdk.services.sqs.model.QueueAttributeName;
import software.amazon.awssdk.services.sqs.model.SendMessageBatchRequestEntry;

public class Orders {
    public static void main(String[] arguments) {
        try (SqsClient sqs = SqsClient.create()) {
            var attributes = Map.of(QueueAttributeName.VISIBILITY_TIMEOUT, "60");
            String url = sqs.createQueue(queue -> queue.queueName("orders-java").attributes(attributes)).queueUrl();
            List<SendMessageBatchRequestEntry> orders = IntStream.range(0, 3)
                .mapToObj(at -> SendMessageBatchRequestEntry.builder()
                    .id(String.valueOf(at)).messageBody("{\"order\": " + at + "}").build())
                .toList();
            var sent = sqs.sendMessageBatch(batch -> batch.queueUrl(url).entries(orders));
            if (sent.hasFailed()) { // each entry may fail alone
                throw new IllegalStateException("not sent: " + sent.failed());
            }
            for (int handled = 0; handled < orders.size(); ) {
                var answer = sqs.receiveMessage(
                    receive -> receive.queueUrl(url).maxNumberOfMessages(10).waitTimeSeconds(20));
                for (Message message : answer.messages()) {
                    System.out.println("shipped " + message.body());
                    sqs.deleteMessage(one -> one.queueUrl(url).receiptHandle(message.receiptHandle()));
                    handled++;
                }
            }
        }
    }
}
