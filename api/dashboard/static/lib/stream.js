// Server-sent events by fetch: EventSource can send no token. A lost one goes on where it stopped.

import { address, Gone, lost, Refusal, send, service } from "./api.js";

/**
 * Follows a stream until the signal aborts or the stream says `end`.
 * @param {string} path
 * @param {Record<string, unknown>} params
 * @param {Record<string, (data: any) => void>} handlers by event name; after `began` and `hello`, earlier changes are not told
 * @param {AbortSignal} signal
 */
export async function follow(path, params, handlers, signal) {
  let [last, again] = ["", false];
  while (!signal.aborted) {
    try {
      const headers = last ? { "Last-Event-ID": last } : undefined;
      const response = await send(address(path, params), { signal, headers });
      for await (const event of events(response.body, signal)) {
        if (event.id) last = event.id;
        const name = event.name === "hello" && !again ? "began" : event.name;
        again ||= name === "began";
        if (name === "hello" && event.data.resumed) continue;
        handlers[name]?.(event.data);
        if (name === "end") return;
      }
    } catch (error) {
      if (signal.aborted) return;
      // A proxy answers 502 while the service restarts.
      if (error instanceof Refusal && error.status < 500 && error.status !== 429) throw error;
      if (!(error instanceof Refusal) && !(error instanceof Gone)) lost();
    }
    again = true;
    await pause(signal);
  }
}

/** Waits until the service is back, a second at most. @param {AbortSignal} signal */
function pause(signal) {
  return new Promise((wake) => {
    const timer = setTimeout(wake, 1000);
    const now = () => { clearTimeout(timer); wake(undefined); };
    service.addEventListener("back", now, { once: true, signal });
    signal.addEventListener("abort", now, { once: true });
  });
}

/**
 * @param {ReadableStream<Uint8Array> | null} body
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<{name: string, id: string, data: any}>}
 */
async function* events(body, signal) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (body).getReader();
  signal.addEventListener("abort", () => void reader.cancel().catch(() => {}), { once: true });
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true }).replaceAll("\r", "");
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const event = parsed(text.slice(0, end));
      text = text.slice(end + 2);
      if (event) yield event;
    }
  }
}

/** @param {string} block */
function parsed(block) {
  const event = { name: "message", id: "", data: /** @type {any} */ (null) };
  const lines = [];
  for (const line of block.split("\n")) {
    const [, field, value] = /^(\w*): ?(.*)$/.exec(line) ?? [];
    if (field === "event") event.name = value;
    else if (field === "id") event.id = value;
    else if (field === "data") lines.push(value);
  }
  if (!lines.length) return null;
  event.data = JSON.parse(lines.join("\n"));
  return event;
}
