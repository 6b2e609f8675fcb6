// The policies, and one policy: its rules, their counters, and the flows that they decided.

import { get } from '/api.js';
import { el, field, href, matchesText, number, numeric, objectName, policyLink, problem, remark, table, td, verdict, when, words } from '/elements.js';
import { listNotes, recordedTable } from '/flows.js';
import { manifest } from '/manifest.js';

const MOST_HITS = 20000;
const MOST_LISTED = 200;

const path = (ref) => ['/v1/policies', ref.kind, ref.namespace, ref.name].filter(Boolean)
  .map((part, at) => (at === 0 ? part : encodeURIComponent(part))).join('/');

export const loadPolicy = (ref, signal) => get(path(ref), {}, signal);

const stateOf = (policy) => el('span', { class: policy.status?.state && policy.status.state !== 'Accepted' && 'warn' }, words(policy.status?.state ?? 'Accepted'));

export async function policies({ query, signal, render, remember }) {
  const { policies: list } = await get('/v1/policies', {}, signal);
  const rows = list.map((policy) => el('tr', {},
    td(policyLink(policy, { class: 'row' })),
    td(stateOf(policy)), td(words(policy.mode ?? 'Enforce')), td(policy.tier), el('td', { class: 'number' }, policy.order),
    numeric(policy.endpoints), numeric(policy.rules),
    policy.since ? when(policy.since) : td('not in the kernel'), td(policy.line ?? '')));
  const input = field('Text', 'text', query.text, { 'data-filter': true, type: 'search' });
  const filter = () => {
    const text = input.querySelector('input').value;
    remember(href('policies', { text }));
    for (const row of rows) row.hidden = !matchesText(row, text);
  };
  input.addEventListener('input', filter);
  render(el('h1', 'Policies'), el('form', { class: 'filters', onsubmit: (event) => event.preventDefault() }, input),
    table(`${number(list.length)} policies, in the order of evaluation`, ['Policy', 'State', 'Mode', 'Tier', '#Order', '#Endpoints', '#Rules', 'Enforced since', 'Defined at'], rows));
  filter();
}

const isPolicy = (one, other) => one.kind === other.kind && one.namespace === other.namespace && one.name === other.name;

// Whether a policy, or one of its rules, decided a flow.
const isHit = (flow, policy, counter) => ['Egress', 'Ingress'].some((direction) => {
  const what = flow[direction.toLowerCase()];
  if (!what || (counter && counter.direction !== direction)) return false;
  if (what.rule) return isPolicy(what.rule, policy) && (!counter || (counter.action !== 'DefaultDeny' && counter.index === what.rule.index));
  return (what.policies ?? []).some((other) => isPolicy(other, policy)) && (!counter || counter.action === 'DefaultDeny');
});

const count = (value) => [numeric(value?.packets), numeric(value?.bytes)];

// The rules of a policy with their counters, some of them marked, and the last hits of recorded flows.
export function rulesTable(detail, { marks = [], flows }) {
  const audit = detail.ruleCounters.some((counter) => counter.wouldAllow || counter.wouldDeny);
  const rows = detail.ruleCounters.map((counter) => {
    const mark = marks.find(({ rule }) => (rule ? rule.direction === counter.direction && rule.index === counter.index : counter.action === 'DefaultDeny'));
    const hit = flows?.find((flow) => isHit(flow, detail, counter));
    return el('tr', { class: mark && 'mark' }, td(words(counter.direction)), td(counter.index ?? ''),
      td(words(counter.action), mark && el('strong', ` (${mark.text})`)), td(counter.line ?? ''), count(counter.count),
      audit && [count(counter.wouldAllow), count(counter.wouldDeny)],
      flows && (hit ? when(hit.last, ' ', verdict(hit.verdict)) : td()));
  });
  const heads = ['Direction', 'Rule', 'Action', 'Written at', '#Packets', '#Bytes', ...(audit ? ['#Would allow', '#Bytes', '#Would deny', '#Bytes'] : []), ...(flows ? ['Last hit'] : [])];
  return table(`Rules of ${objectName(detail)}`, heads, rows);
}

const findings = (title, list) => list?.length > 0 && [el('h2', title), el('ul', { class: 'plain' }, list.map((what) => el('li', `${what.field ? `${what.field}: ` : ''}${what.reason} (${what.at})`)))];

export async function policy({ query, signal, render }) {
  const detail = await loadPolicy(query, signal);
  let hits;
  let note;
  try {
    const list = await get('/v1/flows', { since: '24h', namespace: detail.namespace, limit: MOST_HITS }, signal);
    hits = list.flows.filter((flow) => isHit(flow, detail));
    note = listNotes(list);
  } catch (error) {
    if (signal.aborted) return;
    note = problem(error);
  }
  const facts = [['Tier', detail.tier], ['Order', detail.order], ['Selects', detail.subject], ['State', stateOf(detail)], ['Mode', words(detail.mode ?? 'Enforce')],
    ['Revision', detail.revision], ['Enforced since', detail.since], ['Defined at', detail.line], ['Endpoints of this host', detail.selects.join(', ') || 'none'],
    ['Over the budget', detail.overBudget && 'yes']].filter(([, value]) => value !== undefined && value !== '');
  render(el('h1', objectName(detail)), el('dl', facts.map(([name, value]) => [el('dt', name), el('dd', value)])),
    findings('Why its present definition is not in force', detail.status?.errors), findings('Held closed', detail.status?.closed), findings('Warnings', detail.status?.warnings),
    el('h2', 'Rules'), rulesTable(detail, { flows: hits }),
    el('h2', 'Manifest'), await manifest(query, [], signal),
    el('h2', 'Flows that it decided in the last 24 hours'), remark(note),
    hits && recordedTable(`${number(hits.length)} kinds of flows${hits.length > MOST_LISTED ? `; the last ${MOST_LISTED} of them` : ''}`, hits.slice(0, MOST_LISTED)));
}
