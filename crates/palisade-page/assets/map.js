// The map: boxes, which stand where the server says, and edges; the table below has every edge that is drawn.

import { get } from '/api.js';
import { attempt, choice, drawn, el, field, href, number, numeric, readForm, remark, show, table, td, verdict, verdictChoice, when, words } from '/elements.js';
import { listNotes, recordedTable } from '/flows.js';

const MOST_LETTERS = 22;
const SIZES = [['', '400'], ['100', '100'], ['1000', '1,000']];

const short = (text) => (text.length > MOST_LETTERS ? `${text.slice(0, MOST_LETTERS - 1)}…` : text);

const groupName = (group) => (group.kind === 'Namespace' ? group.name : words(group.kind));

const fullName = (node, group) => `${group.kind === 'Namespace' ? `${group.name}/` : ''}${node.name}${node.controller ? ` (${node.controller})` : ''}`;

const edgeKey = (edge) => `${edge.source}>${edge.destination}>${edge.verdict}`;

// The line of an edge, between the sides that face each other. Denied ones are lower.
function line(edge, nodes) {
  const [from, to] = [nodes.get(edge.source), nodes.get(edge.destination)];
  const out = to.x + to.width <= from.x ? -1 : 1;
  const into = to.x >= from.x + from.width ? -1 : 1;
  const point = (box, side) => [side < 0 ? box.x : box.x + box.width, box.y + box.height / 2 + (edge.verdict === 'Denied' ? 5 : -5)];
  const [x1, y1] = point(from, out);
  const [x2, y2] = point(to, into);
  const bend = Math.max(24, Math.abs(x2 - x1) / 2);
  return { d: `M${x1} ${y1}C${x1 + out * bend} ${y1} ${x2 + into * bend} ${y2} ${x2 + into * 5} ${y2}`, x: (x1 + x2) / 2, y: (y1 + y2) / 2, tip: `M${x2} ${y2}l${into * 9} -4v8z` };
}

const area = (name, { x, y, width, height }, rx) => drawn('rect', { class: name, x, y, width, height, rx });

function picture(data, names, select) {
  const nodes = new Map(data.nodes.map((node) => [node.id, node]));
  const groups = data.groups.map((group) => drawn('g', area('group', group, 6),
    drawn('text', { class: 'title', x: group.x + 10, y: group.y + 17 }, groupName(group))));
  const edges = data.edges.map((edge) => {
    const { d, x, y, tip } = line(edge, nodes);
    const kind = words(edge.verdict);
    return drawn('g', { 'data-edge': edgeKey(edge), onclick: () => select({ edge }) }, drawn('path', { class: `edge ${kind}`, d },
      drawn('title', `${names.get(edge.source)} to ${names.get(edge.destination)}: ${number(edge.count)} ${kind}`)),
    drawn('path', { class: `tip ${kind}`, d: tip }), data.edges.length <= 60 && drawn('text', { class: 'count', x, y: y + 3 }, number(edge.count)));
  });
  const boxes = data.nodes.map((node, at) => drawn('g', { class: 'node', role: 'button', tabindex: at === 0 ? 0 : -1, 'data-node': node.id, 'aria-label': names.get(node.id), onclick: () => select({ node }) },
    area('box', node, node.kind === 'Controller' || node.kind === 'Workload' ? 4 : 14),
    drawn('text', { x: node.x + 8, y: node.y + 19 }, short(node.name)), drawn('title', names.get(node.id))));
  const svg = drawn('svg', { viewBox: `0 0 ${data.width} ${data.height}`, width: data.width, height: data.height, role: 'group', 'aria-label': 'Map: arrow keys go from box to box, Enter selects one; the table below has the same edges' }, groups, edges, boxes);
  svg.addEventListener('keydown', (event) => walk(event, data, svg, select));
  return svg;
}

function walk(event, data, svg, select) {
  const at = data.nodes.find((node) => node.id === event.target.closest('[data-node]')?.dataset.node);
  if (!at) return;
  const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [0, 0];
  if (event.key === 'Enter' || event.key === ' ') select({ node: at });
  else if (dx === 0 && dy === 0) return;
  event.preventDefault();
  let best;
  for (const node of data.nodes) {
    const [x, y] = [node.x - at.x, node.y - at.y];
    const [along, aside] = dx ? [x * dx, Math.abs(y)] : [y * dy, Math.abs(x)];
    if (along > 0 && (!best || along + 2 * aside < best.distance)) best = { node, distance: along + 2 * aside };
  }
  if (!best) return;
  for (const box of svg.querySelectorAll('[data-node]')) {
    box.setAttribute('tabindex', box.dataset.node === best.node.id ? 0 : -1);
    if (box.dataset.node === best.node.id) box.focus();
  }
}

export async function map({ query, signal, render, remember }) {
  const flowsOf = el('section', { 'aria-live': 'polite', id: 'edge-flows' });
  const results = el('div');
  let data;

  const filters = () => {
    const { node, edge, ...rest } = query;
    return rest;
  };
  const showEdge = (edge) => attempt(flowsOf, signal, async () => {
    const { source, destination, verdict: value } = edge;
    const list = await get('/map/flows.json', { ...filters(), source, destination, verdict: value }, signal);
    if (query.edge !== edgeKey(edge)) return;
    show(flowsOf, el('h2', `Flows from ${source} to ${destination}, ${words(value)}`), remark(listNotes(list)), recordedTable(`${number(list.flows.length)} kinds of flows`, list.flows));
  });
  const mark = () => {
    const { node, edge } = query;
    const isShown = (one) => (edge ? edgeKey(one) === edge : !node || one.source === node || one.destination === node);
    for (const [at, row] of [...results.querySelectorAll('#edges tbody tr')].entries()) {
      row.hidden = Boolean(node) && !isShown(data.edges[at]);
      row.className = edge && isShown(data.edges[at]) ? 'mark' : '';
    }
    for (const [at, group] of [...results.querySelectorAll('[data-edge]')].entries()) {
      group.firstChild.classList.toggle('faint', !isShown(data.edges[at]));
      group.firstChild.classList.toggle('selected', Boolean(edge) && isShown(data.edges[at]));
    }
    for (const box of results.querySelectorAll('[data-node]')) box.classList.toggle('selected', box.dataset.node === node);
  };
  const select = ({ node, edge }) => {
    const isSame = node ? query.node === node.id : query.edge === edgeKey(edge);
    query.node = !isSame && node ? node.id : undefined;
    query.edge = !isSame && edge ? edgeKey(edge) : undefined;
    remember(href('map', query));
    mark();
    show(flowsOf);
    if (query.edge) showEdge(edge);
  };
  const load = () => attempt(results, signal, async () => {
    data = await get('/map.json', filters(), signal);
    const names = new Map(data.nodes.map((node) => [node.id, fullName(node, data.groups[node.group])]));
    const rows = data.edges.map((edge) => el('tr', td(el('button', { type: 'button', onclick: () => select({ edge }), 'aria-label': `Flows from ${names.get(edge.source)} to ${names.get(edge.destination)}, ${words(edge.verdict)}` }, 'Flows')),
      td(names.get(edge.source)), td(names.get(edge.destination)), td(verdict(edge.verdict)), numeric(edge.count),
      td(edge.ports.join(', '), edge.morePorts > 0 && ` and ${edge.morePorts} more`), when(edge.last)));
    const { hidden } = data;
    show(results, remark(listNotes(data), ` ${number(data.nodes.length)} boxes and ${number(data.edges.length)} edges are shown`,
      hidden.nodes || hidden.edges ? `; ${number(hidden.nodes)} boxes and ${number(hidden.edges)} edges with fewer flows are not shown.` : '.'),
    el('p', el('span', { class: 'key' }), ' allowed ', el('span', { class: 'key denied' }), ' denied (dashed); numbers are of flows and of denied packets'),
    el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Map' }, picture(data, names, select)), flowsOf,
    el('h2', 'Edges'), table(`${number(data.edges.length)} edges`, ['Flows', 'From', 'To', 'Verdict', '#Count', 'Ports', 'Last'], rows, { id: 'edges' }));
    mark();
    const chosen = data.edges.find((edge) => edgeKey(edge) === query.edge);
    if (chosen) await showEdge(chosen);
  });
  const form = el('form', { class: 'filters', 'aria-label': 'Filters', onsubmit: (event) => event.preventDefault() },
    field('Since', 'since', query.since ?? '24h', { class: 'short', 'data-filter': true }), field('Namespace', 'namespace', query.namespace),
    verdictChoice(query.verdict), choice('Boxes', 'nodes', query.nodes, SIZES));
  query.since ??= '24h';
  form.addEventListener('change', () => {
    readForm(form, query);
    remember(href('map', query));
    show(flowsOf);
    load();
  });
  render(el('h1', 'Map'), form, results);
  await load();
}
