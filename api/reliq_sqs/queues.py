"""The actions on queues: create, find, list, describe, change, purge, delete."""

import base64
from collections.abc import Mapping
from typing import Any

from reliq_sqs import attributes, known, names, policies, redrive, tags
from reliq_sqs.attributes import COUNTS
from reliq_sqs.calls import Call, Result
from reliq_sqs.errors import SqsError, invalid_parameter, invalid_value, missing, no_queue
from reliq_sqs.known import ATTRIBUTE, MODIFIED, SqsQueue
from reliq_sqs.names import Place

_PAGE = 1000  #: queues of a list without MaxResults
_PURGE_EVERY = 60  #: seconds, with strict timing


async def create_queue(call: Call) -> Result:
    """Make a queue; one that is there with the same attributes is returned."""
    place = Place(call.region, call.given["QueueName"])
    wanted = {name.strip(): value for name, value in call.given.get("Attributes", {}).items()}
    fifo = wanted.get("FifoQueue", "").lower() == "true"
    names.check_new(place.name, fifo)
    call.allow(place)
    wanted = attributes.checked(wanted, fifo)
    attributes.check_together(wanted)
    wanted_tags = call.given.get("tags", {})
    tags.check(wanted_tags, place.name)
    wanted = await _with_redrive(call, place, wanted)
    queue = await call.registry.create(place, wanted, wanted_tags)
    _check_same(queue, wanted, wanted_tags)
    await _apply(call, queue)
    return {"QueueUrl": call.url(place)}


def _check_same(queue: SqsQueue, wanted: Mapping[str, str], wanted_tags: Mapping[str, str]) -> None:
    """Raise SqsError if a queue that was there has other attributes or tags than those wanted.

    Some attributes that are stored are not described: the time of a key of KMS where there is no such key.
    """
    has = {"KmsDataKeyReusePeriodSeconds": attributes.KMS_REUSE, **queue.described(), **queue.attributes}
    differs = [f"attribute {name}" for name, value in wanted.items() if has.get(name, "") != value]
    if wanted_tags and wanted_tags != queue.tags:
        differs.append("tags")
    if differs:
        raise SqsError(
            "QueueNameExists", f"A queue already exists with the same name and a different value for {differs[0]}"
        )


async def _with_redrive(call: Call, place: Place, wanted: dict[str, str]) -> dict[str, str]:
    """Return attributes with the redrive policy as it is stored; raises SqsError for a policy that is not possible."""
    if wanted.get("RedriveAllowPolicy"):
        redrive.check_allow(wanted["RedriveAllowPolicy"], place.region)
        wanted = {**wanted, "RedriveAllowPolicy": policies.compact(wanted["RedriveAllowPolicy"])}
    text = wanted.get("RedrivePolicy")
    if not text:
        return wanted
    policy = redrive.read(text, place, call.registry.names)
    target = await call.registry.find(policy.target)
    if target is None or not call.sender.covers(target.queue):
        raise invalid_value(text, "RedrivePolicy", "Dead letter target does not exist.")
    if not redrive.allows(target.attributes.get("RedriveAllowPolicy"), call.registry.names.arn(place)):
        raise invalid_value(
            text, "RedrivePolicy", "The RedriveAllowPolicy of the dead letter target does not allow this source."
        )
    return {**wanted, "RedrivePolicy": policy.text}


async def _apply(call: Call, queue: SqsQueue) -> None:
    """Tell reliq's queue where its dead letters go. Repeated with each CreateQueue, so that nothing stays half done.

    Of several calls at once the one that tells it last may not be the one whose policy holds: each looks again.
    """
    handle = call.registry.handle(queue)
    now: SqsQueue | None = queue
    while now is not None:
        target = call.registry.names.queue(now.buries.target) if now.buries else None
        if target == (await handle.config()).dead_to:
            break
        await handle.configure(dead_to=target)
        now = await call.registry.look(queue.place)


async def get_queue_url(call: Call) -> Result:
    """Return the URL of a queue by its name."""
    if not call.given["QueueName"]:
        raise invalid_parameter("Value for parameter QueueName is invalid. Reason: Must specify a queue name.")
    place = names.of_name(call.given["QueueName"], call.region)
    if call.given.get("QueueOwnerAWSAccountId", call.registry.names.account) != call.registry.names.account:
        raise no_queue("The specified queue does not exist or you do not have access to it.")
    await call.named(place)
    return {"QueueUrl": call.url(place)}


async def list_queues(call: Call) -> Result:
    """List the queues whose names begin with a prefix, a page at a time."""
    prefix = call.given.get("QueueNamePrefix", "")
    places = [one for one in await call.registry.places(call.region) if one.name.startswith(prefix)]
    return _page(call, "QueueUrls", places)


async def list_dead_letter_source_queues(call: Call) -> Result:
    """List the queues of the sender whose dead letters go to this one, a page at a time."""
    queue = await call.queue()
    return {"queueUrls": [], **_page(call, "queueUrls", await call.registry.sources(queue))}


def _page(call: Call, name: str, places: list[Place]) -> Result:
    """Return the URLs of a page of these queues, without those that the sender has no right to list."""
    places = [one for one in places if call.sender.may(call.action, call.registry.names.queue(one))]
    most, token = call.given.get("MaxResults"), call.given.get("NextToken")
    if most is not None and not 1 <= most <= _PAGE:
        raise invalid_parameter(
            f"Value for parameter MaxResults is invalid. Reason: MaxResults must be an integer between 1 and {_PAGE}."
        )
    if token:
        after = _read_token(token)
        places = [one for one in places if one.name > after]
    shown = places[: most or _PAGE]
    page: dict[str, Any] = {name: [call.url(one) for one in shown]} if shown else {}
    if most is not None and len(places) > len(shown):
        page["NextToken"] = base64.b64encode(shown[-1].name.encode()).decode()
    return page


def _read_token(token: str) -> str:
    try:
        return base64.b64decode(token, validate=True).decode()
    except ValueError:  # binascii.Error is one
        raise invalid_parameter("Invalid or expired next token.") from None


async def get_queue_attributes(call: Call) -> Result:
    """Return the attributes that are asked for, of those that have a value."""
    wanted = attributes.wanted(call.given.get("AttributeNames", []))
    queue = await call.queue()
    has = queue.described()
    if wanted.intersection(COUNTS):
        has |= await _counts(call, queue)
    found = {name: value for name, value in has.items() if name in wanted}
    return {"Attributes": found} if found else {}


async def _counts(call: Call, queue: SqsQueue) -> dict[str, str]:
    handle = call.registry.handle(queue)
    await handle.return_due()
    stats = await handle.stats()
    counts = (stats.ready, stats.processing, stats.delayed)
    return {name: str(count) for name, count in zip(COUNTS, counts, strict=True)}


async def set_queue_attributes(call: Call) -> Result:
    """Change attributes; an empty text removes a policy."""
    queue = await call.queue()
    if not call.given["Attributes"]:
        raise missing("Attribute.Name")
    wanted = attributes.checked(call.given["Attributes"], queue.fifo)
    if "FifoQueue" in wanted:
        if wanted["FifoQueue"] != "true":
            raise attributes.invalid("FifoQueue", "Modifying queue type is not supported.")
        del wanted["FifoQueue"]
    wanted = await _with_redrive(call, queue.place, wanted)
    to_set = {ATTRIBUTE + name: value for name, value in wanted.items() if value}
    to_remove = [ATTRIBUTE + name for name, value in wanted.items() if not value]

    def edit(now: SqsQueue) -> tuple[dict[str, str], list[str]]:
        attributes.check_together({**now.attributes, **wanted})
        others = [ATTRIBUTE + name for name in attributes.replaced_by(wanted)]
        modified = int(call.registry.ids.server_now())
        scope = known.scope_from(now, wanted, modified)
        return {**to_set, **scope, MODIFIED: str(modified)}, [*to_remove, *others]

    changed = await call.registry.change(queue, edit)
    await _apply(call, changed)
    if queue.fifo and "DelaySeconds" in wanted:  # on FIFO it is that of all messages
        await call.registry.change_delay(changed)
    return {}


async def purge_queue(call: Call) -> Result:
    """Remove all messages, also those in flight; a FIFO queue forgets the deduplication ids."""
    queue = await call.queue()
    if call.endpoint.strict:
        await _note_purge(call, queue)
    handle = call.registry.handle(queue)
    await handle.purge()
    await handle.purge_received()
    if queue.fifo:
        await handle.forget_deduplication()
    return {}


async def _note_purge(call: Call, queue: SqsQueue) -> None:
    now = int(call.registry.ids.server_now())

    def edit(there: SqsQueue) -> tuple[dict[str, str], tuple[()]]:
        if now - there.purged < _PURGE_EVERY:
            raise SqsError(
                "PurgeQueueInProgress",
                f"Only one PurgeQueue operation on {queue.place.name} is allowed every {_PURGE_EVERY} seconds.",
            )
        return {known.PURGED: str(now)}, ()

    await call.registry.change(queue, edit)


async def delete_queue(call: Call) -> Result:
    """Delete a queue with all its messages."""
    queue = await call.queue()
    await call.registry.delete(queue)
    return {}
