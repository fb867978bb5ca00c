// A producer and a consumer with the SDK of Go, version 2. AWS_ENDPOINT_URL_SQS: the address of `reliq sqs`; the region
// and the access key come from where every SDK of AWS finds them.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func run(ctx context.Context) error {
	settings, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	client := sqs.NewFromConfig(settings, func(options *sqs.Options) {
		// SDKs since November 2023 read the variable by themselves, and need no such function.
		options.EndpointResolver = sqs.EndpointResolverFromURL(os.Getenv("AWS_ENDPOINT_URL_SQS"))
	})
	made, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{
		QueueName:  aws.String("orders-go"),
		Attributes: map[string]string{"VisibilityTimeout": "60"},
	})
	if err != nil {
		return err
	}
	var orders []types.SendMessageBatchRequestEntry
	for at := 0; at < 3; at++ {
		orders = append(orders, types.SendMessageBatchRequestEntry{
			Id:          aws.String(fmt.Sprint(at)),
			MessageBody: aws.String(fmt.Sprintf(`{"order": %d}`, at)),
		})
	}
	sent, err := client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: made.QueueUrl, Entries: orders})
	if err != nil {
		return err
	}
	for _, one := range sent.Failed { // each entry may fail alone
		return fmt.Errorf("not sent: %s: %s", *one.Id, aws.ToString(one.Message))
	}
	for handled := 0; handled < len(orders); {
		answer, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: made.QueueUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 20,
		})
		if err != nil {
			return err
		}
		for _, message := range answer.Messages {
			fmt.Println("shipped", *message.Body)
			_, err := client.DeleteMessage(ctx, &sqs.DeleteMessageInput{
				QueueUrl: made.QueueUrl, ReceiptHandle: message.ReceiptHandle,
			})
			if err != nil {
				return err
			}
			handled++
		}
	}
	return nil
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
