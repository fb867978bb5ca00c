"""All actions of SQS, by name."""

from collections.abc import Mapping

from reliq_sqs import deleting, moving, permissions, queues, receiving, sending, tags
from reliq_sqs.calls import Handler

HANDLERS: Mapping[str, Handler] = {
    "AddPermission": permissions.add_permission,
    "CancelMessageMoveTask": moving.cancel_message_move_task,
    "ChangeMessageVisibility": deleting.change_message_visibility,
    "ChangeMessageVisibilityBatch": deleting.change_message_visibility_batch,
    "CreateQueue": queues.create_queue,
    "DeleteMessage": deleting.delete_message,
    "DeleteMessageBatch": deleting.delete_message_batch,
    "DeleteQueue": queues.delete_queue,
    "GetQueueAttributes": queues.get_queue_attributes,
    "GetQueueUrl": queues.get_queue_url,
    "ListDeadLetterSourceQueues": queues.list_dead_letter_source_queues,
    "ListMessageMoveTasks": moving.list_message_move_tasks,
    "ListQueues": queues.list_queues,
    "ListQueueTags": tags.list_queue_tags,
    "PurgeQueue": queues.purge_queue,
    "ReceiveMessage": receiving.receive_message,
    "RemovePermission": permissions.remove_permission,
    "SendMessage": sending.send_message,
    "SendMessageBatch": sending.send_message_batch,
    "SetQueueAttributes": queues.set_queue_attributes,
    "StartMessageMoveTask": moving.start_message_move_task,
    "TagQueue": tags.tag_queue,
    "UntagQueue": tags.untag_queue,
}
