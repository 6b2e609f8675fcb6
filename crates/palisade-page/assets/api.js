// The agent's API, as the page's server passes it on.

import { withQuery } from '/elements.js';

export class Problem extends Error {
  constructor(status, body) {
    super(body?.error ?? `the answer has status ${status}`);
    this.status = status;
    this.hint = body?.hint;
  }
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, { credentials: 'same-origin', redirect: 'error', ...options });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem(0, { error: 'the page\'s server cannot be reached' });
  }
  if (response.status === 401) location.assign('/login');
  if (!response.ok) throw new Problem(response.status, await response.json().catch(() => undefined));
  return response;
}

export const get = async (path, query, signal) => (await ask(withQuery(path, query), { signal })).json();

export const post = async (path, body, signal) => (await ask(path, {
  method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body), signal,
})).json();

// A line longer than this is no line of the API.
const LONGEST_LINE = 1 << 20;

// Reads lines of JSON until the stream ends.
async function readLines(response, take) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    if (rest.length > LONGEST_LINE) throw new Problem(0, { error: 'a line of the stream is too long' });
    take(lines.filter((line) => line).map((line) => JSON.parse(line)));
  }
}

const wait = (seconds, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, seconds * 1000);
  signal.addEventListener('abort', () => { clearTimeout(timer); resolve(); }, { once: true });
});

// Follows a stream until the signal. `state` gets nothing while connected, else the problem and the seconds to the next
// attempt, of which there is none where the agent refuses the request.
export async function follow(path, { query, take, state, signal }) {
  let delay = 1;
  for (let attempt = 0; !signal.aborted; attempt += 1) {
    let error = new Problem(0, { error: 'the stream has ended' });
    try {
      const response = await ask(withQuery(path, query(attempt)), { signal });
      state(undefined);
      await readLines(response, (lines) => { delay = 1; take(lines); });
    } catch (caught) {
      error = caught instanceof Problem ? caught : new Problem(0, { error: `the stream was cut off` });
    }
    if (signal.aborted) return;
    if ([400, 409, 422].includes(error.status)) {
      state(error);
      return;
    }
    state(error, delay);
    await wait(delay, signal);
    delay = Math.min(delay * 2, 30);
  }
}
