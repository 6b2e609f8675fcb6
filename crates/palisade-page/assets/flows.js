// Live and recorded flows, with one set of filters.

import { follow, get } from '/api.js';
import { attempt, decision, decisions, el, end, endName, field, href, matchesText, number, numeric, policyNames, problem, protocolChoice, quiet, readForm, remark, ruleName, show, table, td, time, traffic, verdict, verdictChoice, when, words } from '/elements.js';
import { whyHref } from '/why.js';

const MOST_ROWS = 2000;
const FIRST_ROWS = 200;
const DRAW_MILLIS = 100;

// The form of the filters; the text alone is compared here, at each key.
function filterForm(view, { query, remember }, changed, more = []) {
  const form = el('form', { class: 'filters', 'aria-label': 'Filters', onsubmit: (event) => event.preventDefault() },
    verdictChoice(query.verdict),
    field('Namespace', 'namespace', query.namespace, { class: 'short' }),
    field('Workload', 'endpoint', query.endpoint, { placeholder: 'shop/db' }),
    field('From', 'from', query.from, { placeholder: 'shop/web' }),
    field('To', 'to', query.to, { placeholder: '192.0.2.1' }),
    protocolChoice('Protocol', query.protocol),
    field('Port', 'port', query.port, { class: 'short', inputmode: 'numeric', pattern: '[0-9]*' }),
    more,
    field('Text', 'text', query.text, { 'data-filter': true, type: 'search' }));
  const take = (event) => {
    readForm(form, query);
    remember(href(view, query));
    changed(event.target.name === 'text' || event.type === 'input');
  };
  form.addEventListener('change', take);
  form.querySelector('[name=text]').addEventListener('input', take);
  return form;
}

// What the agent does not filter live streams by.
const matchesPort = (line, { protocol, port }) => (!protocol || String(line.protocol) === protocol)
  && (!port || String(line.destination?.port) === port);

const whyLink = (flow, at) => el('a', { class: 'row', href: whyHref(flow), 'aria-label': `Why: ${endName(flow.source)} to ${endName(flow.destination)}, ${words(flow.verdict ?? 'Allowed')}, ${at}` }, time(at));

function liveRow(line) {
  const at = line.time ?? line.ended ?? line.began;
  if (line.type === 'Lost') {
    const why = line.rule ? ruleName(line.rule) : line.policies?.length ? policyNames(line.policies) : words(line.reason);
    return el('tr', { class: 'lost' }, when(at),
      el('td', { colspan: 5 }, `${number(line.count)} events are not shown (lost: ${words(line.cause)}) `, why));
  }
  return el('tr', when(whyLink(line, at)),
    td(verdict(line.verdict ?? 'Allowed', line.state ? `, ${words(line.state)}` : line.rejected ? ', answered' : ''), line.reply && ' (reply)'),
    td(end(line.source, line.source.port)), td(end(line.destination, line.destination.port)),
    td(traffic(line)),
    td(line.type === 'Flow' ? decisions(line) : decision(line), line.stale && quiet(' (the rules have changed since)')));
}

export async function live(context) {
  const { query, signal, render, interrupted } = context;
  const body = el('tbody');
  const state = el('p', { role: 'status', class: 'quiet', id: 'stream' }, 'Connecting.');
  const pause = el('button', { type: 'button', 'data-pause': true, 'aria-pressed': 'false' }, 'Pause');
  let pending = [];
  let dropped = 0;
  let received = 0;
  let flows = true;
  let stream = new AbortController();
  let ready = false;

  const paused = () => pause.getAttribute('aria-pressed') === 'true';
  const tell = () => {
    if (!ready) return;
    const waiting = paused() ? `Paused: ${number(pending.length + dropped)} new events.` : 'Following.';
    const kept = `${number(body.rows.length)} rows, at most ${number(MOST_ROWS)} are kept.`;
    state.textContent = `${waiting} ${kept}${flows ? '' : ' The agent does not follow flows: only packets are shown that were denied or logged.'}`;
  };
  const draw = () => {
    if (!paused() && (pending.length > 0 || dropped > 0)) {
      const rows = pending.map(liveRow).reverse();
      if (dropped > 0) rows.push(liveRow({ type: 'Lost', time: pending[0]?.time, count: dropped, cause: 'Page', reason: 'too many at once' }));
      for (const row of rows) row.hidden = !matchesText(row, query.text);
      body.prepend(...rows);
      while (body.rows.length > MOST_ROWS) body.lastChild.remove();
      pending = [];
      dropped = 0;
    }
    tell();
  };
  const take = (lines) => {
    received += lines.length;
    pending.push(...lines.filter((line) => line.type === 'Lost' || matchesPort(line, query)));
    if (pending.length > MOST_ROWS) {
      dropped += pending.length - MOST_ROWS;
      pending = pending.slice(-MOST_ROWS);
    }
  };
  const start = () => {
    stream.abort();
    stream = new AbortController();
    signal.addEventListener('abort', () => stream.abort(), { once: true });
    const own = stream;
    const { text, protocol, port, ...filters } = query;
    follow('/v1/monitor', {
      signal: own.signal,
      take: (lines) => { if (!own.signal.aborted) take(lines); },
      query: (attempt) => ({ ...filters, flows, last: attempt === 0 ? FIRST_ROWS : 0 }),
      state: (error, seconds) => {
        if (own.signal.aborted) return;
        ready = !error;
        if (error?.status === 409 && flows) { flows = false; start(); return; }
        interrupted(error && seconds && `Disconnected: ${error.message}. The next attempt is in ${seconds} s.`);
        if (error && !seconds) show(state, problem(error));
        else if (error) state.textContent = 'Not connected.';
        else tell();
        if (error && seconds && received > 0) {
          take([{ type: 'Lost', time: new Date().toISOString(), count: '?', cause: 'Disconnected' }]);
          received = 0;
        }
      },
    });
  };
  pause.addEventListener('click', () => {
    pause.setAttribute('aria-pressed', String(!paused()));
    pause.textContent = paused() ? 'Follow' : 'Pause';
    draw();
  });
  const form = filterForm('live', context, (isText) => {
    if (isText) { for (const row of body.rows) row.hidden = !matchesText(row, query.text); return; }
    show(body);
    pending = [];
    start();
  });
  form.append(pause);
  const list = table('Events, the last first', ['Time', 'Verdict', 'Source', 'Destination', 'Port', 'Rule'], []);
  list.tBodies[0].replaceWith(body);
  render(el('h1', 'Live flows'), form, state, list);
  const timer = setInterval(draw, DRAW_MILLIS);
  signal.addEventListener('abort', () => clearInterval(timer), { once: true });
  start();
}

// A row of a recorded flow.
function recordedRow(flow) {
  const carried = flow.traffic && `${number(flow.traffic.bytesSent)} / ${number(flow.traffic.bytesReceived)}`;
  return el('tr', when(whyLink(flow, flow.last)), td(verdict(flow.verdict)),
    td(end(flow.source)), td(end(flow.destination)), td(traffic(flow)),
    numeric(flow.count), when(flow.first),
    numeric(carried), td(decisions(flow)));
}

export const recordedTable = (caption, flows) => table(caption,
  ['Last', 'Verdict', 'Source', 'Destination', 'Port', '#Count', 'First', '#Bytes sent / received', 'Rule'], flows.map(recordedRow));

export const listNotes = (list) => [
  list.since ? `Node ${list.node}; the record begins at ${list.since}.` : `Node ${list.node}; nothing is recorded yet.`,
  list.lost > 0 && ` ${number(list.lost)} flows and packets of this time were not recorded.`,
  list.truncated && ' There are more than these.'];

export async function recorded(context) {
  const { query, signal, render } = context;
  const results = el('div');
  const load = () => attempt(results, signal, async () => {
    const { text, ...filters } = query;
    const list = await get('/v1/flows', filters, signal);
    show(results, remark(listNotes(list)), recordedTable(`${number(list.flows.length)} kinds of flows, the last seen first`, list.flows));
    filterRows();
  });
  const filterRows = () => { for (const row of results.querySelectorAll('tbody tr')) row.hidden = !matchesText(row, query.text); };
  const form = filterForm('flows', context, (isText) => (isText ? filterRows() : load()), [field('Since', 'since', query.since, { class: 'short', placeholder: '24h' }), field('Until', 'until', query.until, { class: 'short' })]);
  render(el('h1', 'Recorded flows'), form, results);
  await load();
}
