// Why a flow is allowed or denied, and the rule among those of its policy and in its manifest.

import { get } from '/api.js';
import { el, field, href, objectName, policyLink, policyNames, problem, protocolChoice, quiet, readForm, remark, show, traffic, verdict, words } from '/elements.js';
import { manifest } from '/manifest.js';
import { loadPolicy, rulesTable } from '/policies.js';

const MOST_POLICIES = 4;

// How the request names an end; of a controller, what finds its pods.
function endQuery(side, end) {
  if (end.namespace && end.name) return { [side]: `${end.namespace}/${end.name}` };
  if (end.namespace && end.controller) {
    const labels = Object.entries(end.labels ?? {}).map(([key, value]) => `${key}=${value}`).join(',');
    return { [`${side}Of`]: [end.namespace, end.controller.kind, end.controller.name].join('/'), [`${side}Labels`]: labels };
  }
  if (end.node) return { [side]: `host:${end.node}` };
  return { [side]: end.address ?? (end.names?.length && side === 'to' ? `name:${end.names[0]}` : '') };
}

const withPort = ({ address, port }) => (port === undefined ? address : address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`);

// The address of the view for a flow. A reply is judged as the first packet of its connection, which went the other way.
export function whyHref(flow) {
  const [source, destination] = flow.reply ? [flow.destination, flow.source] : [flow.source, flow.destination];
  const port = flow.port ?? destination.port;
  const type = flow.icmp?.type ?? flow.icmpType;
  const original = flow.originalDestination ?? flow.translation?.originalDestination;
  return href('why', {
    ...endQuery('from', source), ...endQuery('to', destination),
    port: port === undefined ? undefined : `${port}/${flow.protocol}`,
    protocol: port === undefined ? flow.protocol : undefined,
    icmpType: type === undefined ? undefined : `${type}/${flow.icmp?.code ?? flow.icmpCode ?? 0}`,
    sourcePort: source.port,
    originalDestination: original && withPort(original),
    seen: flow.verdict ?? 'Allowed', time: flow.time ?? flow.last ?? flow.ended ?? flow.began,
  });
}

// A pod of a controller on this host; its labels are those that all pods of the controller have.
function podOf(of, labels, endpoints) {
  const [namespace, , ...name] = of.split('/');
  const wanted = (labels ?? '').split(',').filter(Boolean).map((pair) => pair.split(/=(.*)/s));
  const pods = endpoints.filter((pod) => pod.namespace === namespace && pod.name.startsWith(name.join('/'))
    && wanted.every(([key, value]) => pod.labels[key] === value));
  return pods[0] && `${namespace}/${pods[0].name}`;
}

async function resolve(query, signal) {
  const notes = [];
  let endpoints;
  for (const side of ['from', 'to']) {
    const of = query[`${side}Of`];
    if (!of || query[side]) continue;
    endpoints ??= (await get('/v1/endpoints', {}, signal)).endpoints;
    const pod = podOf(of, query[`${side}Labels`], endpoints);
    if (pod) query[side] = pod;
    notes.push(pod ? `${pod} stands for the pods of ${of}.` : `No pod of ${of} is on this host: enter one, or an address, in the field "${words(side)}".`);
  }
  return notes;
}

const ruleText = (rule) => [rule.policy ? policyLink(rule.policy) : `profile ${rule.profile}`,
  ` ${words(rule.direction)} rule ${rule.index}${rule.name ? ` ${rule.name}` : ''}: ${words(rule.action)}`,
  rule.line && quiet(` (${rule.line})`)];

export function decidedBy(by) {
  if (by.type === 'Rule') return ['decided by ', ruleText(by)];
  if (by.type === 'TierDefault') return [`denied by the default of tier ${by.tier}; isolated by `, policyNames(by.isolating)];
  const more = by.profile ?? by.parameter;
  return `decided by: ${words(by.type)}${more ? ` (${more})` : ''}`;
}

function step(what) {
  if (what.step === 'Tier') return `tier ${what.tier}${what.counts ? '' : ': none of its policies applies'}`;
  if (what.step === 'Policy') return [policyLink(what.policy), what.judges ? ' applies' : ` does not apply: ${what.reason ?? (what.inAudit ? 'it is in audit' : 'it does not select the endpoint')}`];
  if (what.step === 'TierEnd') return `end of tier ${what.tier}: ${words(what.outcome)} (${what.reason})`;
  if (what.step === 'Profile') return `profile ${what.profile}${what.exists ? '' : ' does not exist'}`;
  return [ruleText(what), what.matched ? ' matches' : ' does not match', what.reasons?.length > 0 && el('ul', what.reasons.map((reason) => el('li', reason)))];
}

function side(title, report) {
  const subject = report.subject ? ` of ${objectName(report.subject)}` : '';
  const miss = report.nearestMiss;
  return el('section', { class: 'case' }, el('h3', `${title}${subject}: `, verdict(report.verdict)),
    el('p', decidedBy(report.decidedBy)),
    report.audit && el('p', 'If nothing were in audit: ', verdict(report.audit.verdict), ', ', decidedBy(report.audit.decidedBy)),
    miss && [el('p', 'Nearest rule: ', ruleText(miss.rule), '. It does not match because:'), el('ul', miss.unless.map((reason) => el('li', reason)))],
    report.steps.length > 0 && el('ol', { class: 'steps' }, report.steps.map((what) => el('li', { class: what.matched && 'mark' }, step(what)))),
    report.notApplying > 0 && remark(`${report.notApplying} other policies do not apply.`));
}

const flowEnd = (end) => [end.endpoint ? objectName(end.endpoint) : end.node ? `host:${end.node}` : '', end.address, end.service && `by Service ${end.service}`].filter(Boolean).join(' ');

const sides = (report) => [report.egress, ...(report.hosts ?? []), report.ingress];

function flowCase(report) {
  return [el('p', { class: 'verdict' }, verdict(report.verdict), `: ${flowEnd(report.from)} to ${flowEnd(report.to)}, ${traffic(report)}`,
    report.rejectedWith && ` (answered with ${words(report.rejectedWith)})`, report.auditVerdict && [', if nothing were in audit: ', verdict(report.auditVerdict)]),
  side('Egress', report.egress),
  (report.hosts ?? []).map((host) => side(`Host ${host.node}, interface ${host.interface}, ${words(host.stage)}, ${words(host.direction)}`, host)),
  side('Ingress', report.ingress)];
}

// The policies that decided, each with its rules: the one that decided is marked.
async function decidingPolicies(cases, signal) {
  const found = new Map();
  for (const { decidedBy: by, nearestMiss: miss } of cases.flatMap(sides)) {
    const rules = [by.type === 'Rule' && by, miss?.rule].filter((rule) => rule && rule.policy);
    const refs = rules.map((rule) => [rule.policy, rule]).concat((by.isolating ?? []).map((policy) => [policy]));
    for (const [policy, rule] of refs) {
      const entry = found.get(objectName(policy)) ?? { policy, marks: [] };
      entry.marks.push(rule === by ? { rule, text: 'decided' } : rule ? { rule, text: 'nearest' } : { text: 'decided' });
      found.set(objectName(policy), entry);
    }
  }
  return Promise.all([...found.values()].slice(0, MOST_POLICIES).map(async ({ policy, marks }) => {
    const title = el('h2', 'The rule in ', policyLink(policy));
    try {
      const [detail, text] = await Promise.all([loadPolicy(policy, signal), manifest(policy, marks, signal)]);
      return [title, remark(`Defined at ${detail.line ?? 'a place that is not known'}.`), rulesTable(detail, { marks }), text];
    } catch (error) {
      return [title, problem(error)];
    }
  }));
}

export async function why({ query, signal, render, remember }) {
  const results = el('div');
  const explain = async () => {
    show(results);
    try {
      const notes = await resolve(query, signal);
      for (const name of ['from', 'to']) form.elements[name].value = query[name] ?? '';
      const noted = notes.map((note) => el('p', { class: 'warn' }, note));
      show(results, noted);
      if (!query.from || !query.to) return;
      const { seen: wasSeen, time, fromOf, fromLabels, toOf, toLabels, ...flow } = query;
      const answer = await get('/v1/explain', flow, signal);
      const others = answer.others ?? [];
      const rules = await decidingPolicies([answer, ...others], signal);
      show(results, noted, answer.notes?.map((note) => remark(note)), flowCase(answer), rules,
        others.map((other) => [el('h2', 'Another case of this flow'), flowCase(other)]));
    } catch (error) {
      if (!signal.aborted) results.append(problem(error));
    }
  };
  const form = el('form', { class: 'filters', 'aria-label': 'Flow' },
    field('From', 'from', query.from, { placeholder: 'shop/web', 'data-filter': true, required: true }), field('To', 'to', query.to, { placeholder: 'shop/db', required: true }),
    field('Port', 'port', query.port, { placeholder: '5432/TCP', class: 'short' }),
    protocolChoice('Without a port', query.protocol),
    field('ICMP type/code', 'icmpType', query.icmpType, { class: 'short' }), el('button', 'Explain'));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    readForm(form, query);
    remember(href('why', query));
    show(seen);
    explain();
  });
  const seen = el('p', {});
  if (query.seen) seen.append('Seen at ', query.time ?? '', ': ', verdict(query.seen), '. Explained by the policies in force now.');
  render(el('h1', 'Why'), form, seen, results);
  if (query.from || query.fromOf) await explain();
}
