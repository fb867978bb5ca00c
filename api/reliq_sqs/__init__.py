"""Amazon SQS' protocol on reliq's queues: what an SDK of AWS sends, a Python worker handles, and vice versa."""
