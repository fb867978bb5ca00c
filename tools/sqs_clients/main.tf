# Queues as Terraform makes them, against `reliq sqs`; run by tools/test_sqs.py.

terraform {
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

variable "endpoint" {}

variable "visibility" {
  default = 45
}

provider "aws" {
  region                      = "us-east-1"
  access_key                  = "test"
  secret_key                  = "test"
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_requesting_account_id  = true

  endpoints {
    sqs = var.endpoint
  }
}

resource "aws_sqs_queue" "dead" {
  name = "tf-dead"
  tags = { team = "a" }
}

resource "aws_sqs_queue" "orders" {
  name                       = "tf-orders"
  visibility_timeout_seconds = var.visibility
  delay_seconds              = 2
  message_retention_seconds  = 86400
  receive_wait_time_seconds  = 5
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead.arn
    maxReceiveCount     = 4
  })
  tags = { team = "a", stage = "test" }
}

resource "aws_sqs_queue" "fifo" {
  name                        = "tf-orders.fifo"
  fifo_queue                  = true
  content_based_deduplication = true
  deduplication_scope         = "messageGroup"
  fifo_throughput_limit       = "perMessageGroupId"
}

resource "aws_sqs_queue_redrive_allow_policy" "dead" {
  queue_url = aws_sqs_queue.dead.id
  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = [aws_sqs_queue.orders.arn]
  })
}

resource "aws_sqs_queue_policy" "orders" {
  queue_url = aws_sqs_queue.orders.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "a"
      Effect    = "Allow"
      Principal = "*"
      Action    = "sqs:SendMessage"
      Resource  = aws_sqs_queue.orders.arn
    }]
  })
}

data "aws_sqs_queue" "orders" {
  name = aws_sqs_queue.orders.name
}

output "url" {
  value = data.aws_sqs_queue.orders.url
}
