// Elements, and how ends, rules and ports are named. Text only becomes text nodes and values of fixed attributes: nothing
// reads it as markup.

// Attributes are an object that comes first, and may be left out.
function fill(node, children) {
  const [first] = children;
  const hasAttributes = first && Object.getPrototypeOf(first) === Object.prototype;
  const attributes = hasAttributes ? children.shift() : {};
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false || child === '') continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

export const el = (tag, ...children) => fill(document.createElement(tag), children);

export const td = (...children) => el('td', ...children);

export const numeric = (value) => el('td', { class: 'number' }, number(value));

export const when = (value, ...more) => el('td', { class: 'when' }, typeof value === 'string' ? time(value) : value, ...more);

// Shows parts in the place of what an element has.
export const show = (target, ...parts) => target.replaceChildren(...parts.flat(Infinity).filter(Boolean));

export const quiet = (...children) => el('span', { class: 'quiet' }, ...children);

export const remark = (...children) => el('p', { class: 'quiet' }, ...children);

export const drawn = (tag, ...children) => fill(document.createElementNS('http://www.w3.org/2000/svg', tag), children);

// A path with query; empty ones are left out.
export function withQuery(path, query = {}) {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== ''));
  return text.size ? `${path}?${text}` : path;
}

export const href = (view, query) => withQuery(`#/${view}`, query);

// Takes the fields of a form that are filled in as the query.
export function readForm(form, query) {
  Object.keys(query).forEach((name) => delete query[name]);
  Object.assign(query, Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== '')));
}

export const matchesText = (row, text) => !text || row.textContent.toLowerCase().includes(text.toLowerCase());

export const words = (name) => String(name ?? '').replace(/([a-z0-9])([A-Z])/g, '$1 $2').toLowerCase();

export const number = (value) => String(value ?? '').replace(/\B(?=(\d{3})+(?!\d))/g, ',');

export const table = (caption, heads, rows, attributes = {}) => el('table', attributes,
  el('caption', caption),
  el('thead', el('tr', heads.map((head) => el('th', { scope: 'col', class: head.startsWith('#') && 'number' }, head.replace('#', ''))))),
  el('tbody', rows));

export function verdict(value, more = '') {
  const denied = String(value).startsWith('Den');
  return el('span', { class: denied ? 'deny' : 'allow' }, denied ? '✕ ' : '✓ ', words(value), more);
}

export const objectName = (ref) => `${ref.kind} ${ref.namespace ? `${ref.namespace}/` : ''}${ref.name}`;

export const policyLink = ({ kind, namespace, name }, attributes) => el('a', { href: href('policy', { kind, namespace, name }), ...attributes }, objectName({ kind, namespace, name }));

const place = (ref) => ref.line && quiet(` (${ref.line})`);

export const ruleName = (rule) => [policyLink(rule), ` rule ${rule.index}`, rule.ruleName && ` ${rule.ruleName}`, place(rule)];

export const policyNames = (policies) => policies.map((policy, at) => [at > 0 && ', ', policyLink(policy), place(policy)]);

export function decision(what) {
  if (what.rule) return ruleName(what.rule);
  const reason = words(what.reason);
  return what.policies?.length ? [`${reason}: `, policyNames(what.policies)] : reason;
}

// What decided at both ends of a flow.
export const decisions = (flow) => ['egress', 'ingress'].filter((side) => flow[side])
  .map((side) => el('div', `${side}: `, decision(flow[side])));

// The name of an end, and what else is known of it.
export function end(what, port) {
  const withPort = (text) => (port === undefined || port === null ? text : `${text}:${port}`);
  const first = endName(what);
  const more = [];
  if (what.controller && what.name) more.push(`${what.controller.kind} ${what.controller.name}`);
  if (what.address && what.address !== first) more.push(withPort(what.address));
  else if (port && first !== what.address) more.push(`port ${port}`);
  if (what.names?.length && !what.namespace) more.push(...what.names.filter((name) => name !== first));
  if (what.service) more.push(`by Service ${what.service.namespace}/${what.service.name}`);
  return [el('span', first === what.address ? withPort(first) : first), more.length > 0 && quiet(` ${more.join(', ')}`)];
}

export function endName(what) {
  if (what.namespace && what.name) return `${what.namespace}/${what.name}`;
  if (what.namespace && what.controller) return `${what.namespace}/${what.controller.name} (${what.controller.kind})`;
  if (what.namespace) return `${what.namespace}/?`;
  if (what.node) return `host:${what.node}`;
  return what.names?.[0] ?? what.address ?? 'other addresses';
}

export function traffic(flow) {
  const port = flow.port ?? flow.destination?.port;
  const [type, code] = flow.icmp ? [flow.icmp.type, flow.icmp.code] : [flow.icmpType, flow.icmpCode].flat();
  if (port !== undefined) return `${port}/${flow.protocol}`;
  if (type !== undefined) return `${flow.protocol} ${type}/${code ?? 0}`;
  return typeof flow.protocol === 'number' ? `protocol ${flow.protocol}` : flow.protocol;
}

export const time = (value) => el('time', { datetime: value }, value ?? '');

export function problem(error) {
  return el('p', { class: 'error', role: 'alert' }, error.message, error.hint && ` (${error.hint})`);
}

// Does something, and shows why it failed.
export async function attempt(target, signal, work) {
  try {
    await work();
  } catch (error) {
    if (!signal.aborted) target.replaceChildren(problem(error));
  }
}

// A field of a form, by its label.
export function field(label, name, value, attributes = {}) {
  return el('label', label, el('input', { name, value: value ?? '', autocomplete: 'off', spellcheck: 'false', ...attributes }));
}

export function choice(label, name, value, options) {
  const select = el('select', { name }, options.map(([key, text]) => el('option', { value: key, selected: key === (value ?? '') }, text)));
  return el('label', label, select);
}

export const verdictChoice = (value) => choice('Verdict', 'verdict', value, [['', 'all'], ['Allowed', 'allowed'], ['Denied', 'denied']]);

export const protocolChoice = (label, value) => choice(label, 'protocol', value,
  [...new Set(['', 'TCP', 'UDP', 'SCTP', 'ICMP', 'ICMPv6', value ?? ''])].map((name) => [name, name || 'all']));
