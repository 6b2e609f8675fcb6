// What a changed policy would have cut and opened, of the recorded flows.

import { post } from '/api.js';
import { el, end, field, href, number, numeric, problem, remark, show, table, td, traffic, verdict, when, words } from '/elements.js';
import { decidedBy } from '/why.js';

const LARGEST_FILE = 1 << 20;

const deniedBy = (list) => list?.map((side) => el('div', `${words(side.direction)}: `, decidedBy(side.decidedBy)));

function flows(title, about, list) {
  const rows = list.map((flow) => el('tr', when(flow.last), td(verdict(flow.recorded)),
    td(end(flow.source)), td(end(flow.destination)), td(traffic(flow)), numeric(flow.count),
    when(flow.first),
    td(flow.reason ?? deniedBy(flow.deniedBy), flow.pairs && el('div', { class: 'quiet' }, `${flow.pairs.concerned} of ${flow.pairs.total} pairs of pods`),
      flow.reconstructed?.length > 0 && el('div', { class: 'quiet' }, `no pod any more: ${flow.reconstructed.map(words).join(', ')}`))));
  return el('section', { 'data-part': title }, el('h2', `${title}: ${number(list.length)}`), remark(about),
    rows.length > 0 && table(title, ['Last', 'Recorded', 'Source', 'Destination', 'Port', '#Count', 'First', 'Why'], rows));
}

function report(answer) {
  const { record } = answer;
  const notes = [`${number(answer.judged)} of ${number(record.flows)} kinds of flows were judged, recorded from ${record.since ?? '-'} to ${record.until ?? 'now'}.`,
    record.lost > 0 && `${number(record.lost)} flows and packets were not recorded.`,
    record.nodesMissing.length > 0 && `The records of these nodes were not read: ${record.nodesMissing.join(', ')}.`,
    record.truncated.length > 0 && `The records of these nodes are cut off: ${record.truncated.join(', ')}.`, ...answer.notes];
  return [el('ul', { class: 'plain' }, notes.filter(Boolean).map((note) => el('li', note))),
    flows('Cut', 'Recorded as allowed, and denied by the change.', answer.cut),
    flows('Opened', 'Denied by the present policies, and allowed by the change.', answer.opened),
    flows('Already denied', 'Recorded as allowed, and denied by the present policies and by the change.', answer.alreadyDenied),
    flows('Not judged', 'Why is in the last column.', answer.unjudged)];
}

export async function preview({ query, signal, render, remember }) {
  const text = el('textarea', { name: 'manifests', id: 'manifests', spellcheck: 'false', required: true, 'aria-describedby': 'about', 'data-filter': true });
  const file = el('input', { type: 'file', accept: '.yaml,.yml,.json' });
  const button = el('button', 'Preview');
  const results = el('div', { id: 'results', 'aria-live': 'polite' });
  file.addEventListener('change', async () => {
    const chosen = file.files[0];
    if (!chosen) return;
    if (chosen.size > LARGEST_FILE) show(results, el('p', { class: 'error', role: 'alert' }, 'The file is larger than 1 MiB.'));
    else text.value = await chosen.text();
  });
  const since = field('Flows of the last', 'since', query.since ?? '24h', { class: 'short' });
  const form = el('form', el('p', { id: 'about' }, 'The changed policies, as YAML. Nothing is applied: the recorded flows are judged by them.'),
    el('label', { for: 'manifests' }, 'Manifests'), text, el('p', { class: 'filters' }, el('label', 'From a file', file), since, button));
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    const span = since.querySelector('input').value;
    remember(href('preview', { since: span }));
    button.disabled = true;
    show(results, el('p', 'The flows are being judged.'));
    try {
      const answer = await post('/v1/preview', { manifests: text.value, ...(span && { since: span }) }, signal);
      show(results, report(answer));
    } catch (error) {
      if (signal.aborted) return;
      show(results, error.status === 404 ? el('p', { class: 'warn', role: 'alert' }, 'This agent has no preview.') : problem(error));
    } finally {
      button.disabled = false;
    }
  });
  render(el('h1', 'Preview of changed policies'), form, results);
}
