// A producer and a consumer over HTTP, with nothing but what Node.js has. RELIQ_API: the address of the service.
const api = process.env.RELIQ_API;
const key = process.env.RELIQ_KEY;

async function call(method, path, body, headers = {}) {
  const answer = await fetch(api + path, {
    method,
    headers: { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }), ...headers },
    body: JSON.stringify(body),
  });
  const content = await answer.json();
  if (!answer.ok) throw new Error(`${content.code}: ${content.detail}`); // application/problem+json
  return content;
}

// Send. With the key, the same request may be sent again after a lost answer, and counts once.
for (let order = 1; order <= 3; order++) {
  const path = "/v1/queues/orders/messages";
  const headers = { "idempotency-key": `"order-${order}"` };
  const first = await call("POST", path, { body: { order } }, headers);
  const again = await call("POST", path, { body: { order } }, headers);
  console.log(`sent ${order}, again: ${first.id === again.id ? "the same" : "another"}`);
}

// Consume: lease, handle, settle.
const { lease, messages } = await call("POST", "/v1/queues/orders/leases", { limit: 10, wait: 5, lease: 30 });
const done = { ack: [], retry: [] };
for (const message of messages) {
  try {
    if (message.body.order === 2) throw new Error("out of stock");
    console.log(`shipped ${message.body.order}`);
    done.ack.push(message.id);
  } catch (error) {
    done.retry.push({ id: message.id, delay: 60, error: error.message });
  }
}
const { results } = await call("POST", `/v1/queues/orders/leases/${lease}/settle`, done);
console.log(`settled ${results.filter((one) => one.code === "done").length}`);
const queue = await fetch(`${api}/v1/queues/orders`).then((answer) => answer.json());
console.log(`acked ${queue.counters.acked}, delayed ${queue.delayed}`);
