"""Errors as SQS has them: a name, a status, and a code of the query protocol that often differs from the name."""

from reliq_sqs.model import modelled_errors

_LEGACY = "AWS.SimpleQueueService."
NO_QUEUE = "The specified queue does not exist."

#: The codes of the query protocol that differ from the names of the errors.
_CODES = {
    **{
        name: _LEGACY + name
        for name in (
            "BatchEntryIdsNotDistinct", "BatchRequestTooLong", "EmptyBatchRequest", "InvalidBatchEntryId",
            "MessageNotInflight", "PurgeQueueInProgress", "QueueDeletedRecently", "TooManyEntriesInBatchRequest",
            "UnsupportedOperation",
        )
    },
    "QueueDoesNotExist": _LEGACY + "NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
    "KmsAccessDenied": "KMS.AccessDeniedException",
    "KmsDisabled": "KMS.DisabledException",
    "KmsInvalidKeyUsage": "KMS.InvalidKeyUsageException",
    "KmsInvalidState": "KMS.InvalidStateException",
    "KmsNotFound": "KMS.NotFoundException",
    "KmsOptInRequired": "KMS.OptInRequired",
    "KmsThrottled": "KMS.ThrottlingException",
    "InvalidParameterValueException": "InvalidParameterValue",
    "MissingRequiredParameterException": "MissingParameter",
    "AccessDeniedException": "AccessDenied",
    "InvalidClientTokenIdException": "InvalidClientTokenId",
    "InvalidSignatureException": "SignatureDoesNotMatch",
    "IncompleteSignatureException": "IncompleteSignature",
    "MissingAuthenticationTokenException": "MissingAuthenticationToken",
    "SerializationException": "MalformedInput",
}  # fmt: skip

#: The statuses that are not 400.
_STATUSES = {
    "InvalidAddress": 404,
    "ReceiptHandleIsInvalid": 404,
    "ResourceNotFoundException": 404,
    "OverLimit": 403,
    "RequestThrottled": 403,
    "PurgeQueueInProgress": 403,
    "InvalidSecurity": 403,
    "KmsOptInRequired": 403,
    "AccessDeniedException": 403,
    "InvalidClientTokenIdException": 403,
    "InvalidSignatureException": 403,
    "MissingAuthenticationTokenException": 403,
    "RequestEntityTooLarge": 413,
    "RequestTimeout": 408,
    "InternalFailure": 500,
    "ServiceUnavailable": 503,
}


class SqsError(Exception):
    """An error answer. `name`: of the model, or one that all services of AWS have; `status`: if not that of it."""

    def __init__(self, name: str, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.message = message
        self.status = status or _STATUSES.get(name, 400)

    @property
    def code(self) -> str:
        """The code in the query protocol, which SDKs show for both."""
        return _CODES.get(self.name, self.name)

    @property
    def fault(self) -> str:
        """Who caused it: Sender or Receiver."""
        return "Receiver" if self.status >= 500 else "Sender"

    @property
    def kind(self) -> str:
        """The name with its namespace, as the JSON protocol has it."""
        space = "com.amazonaws.sqs" if self.name in modelled_errors() else "com.amazon.coral.service"
        return f"{space}#{self.name}"


INVALID = "Value {} for parameter {} is invalid. Reason: {}"


def invalid_parameter(message: str) -> SqsError:
    return SqsError("InvalidParameterValueException", message)


def invalid_value(value: object, parameter: str, reason: str) -> SqsError:
    """Return the error for a value of a parameter, with the reason as a sentence."""
    return invalid_parameter(INVALID.format(value, parameter, reason))


def missing(parameter: str) -> SqsError:
    return SqsError("MissingRequiredParameterException", f"The request must contain the parameter {parameter}.")


def no_queue(message: str = NO_QUEUE) -> SqsError:
    return SqsError("QueueDoesNotExist", message)
