// Which view is shown, the agent's status, and the keys. The state of a view is in the address.

import { get } from '/api.js';
import { el, problem, show as fill } from '/elements.js';
import { live, recorded } from '/flows.js';
import { map } from '/map.js';
import { policies, policy } from '/policies.js';
import { preview } from '/preview.js';
import { why } from '/why.js';

const views = { live, flows: recorded, map, policies, policy, why, preview };
const main = document.getElementById('main');
const connection = document.getElementById('connection');
const STATUS_SECONDS = 10;

let leaving = new AbortController();
let shown = '';

function address() {
  const [path, text = ''] = location.hash.replace(/^#\/?/, '').split(/\?(.*)/s);
  const view = Object.hasOwn(views, path) ? path : 'live';
  return { view, query: Object.fromEntries(new URLSearchParams(text)) };
}

// Reasons why what is shown may be old, by who says so.
const interruptions = new Map();

function interrupted(who, text) {
  if (text) interruptions.set(who, text); else interruptions.delete(who);
  connection.textContent = [...interruptions.values()].join(' ');
  connection.hidden = interruptions.size === 0;
}

async function show() {
  const { view, query } = address();
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  interrupted('stream');
  const current = view === 'policy' ? 'policies' : view;
  for (const link of document.querySelectorAll('#views a')) {
    if (link.getAttribute('href') === `#/${current}`) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  const isNew = shown !== view;
  shown = view;
  main.dataset.ready = 'false';
  const context = {
    query,
    signal,
    interrupted: (text) => { if (!signal.aborted) interrupted('stream', text); },
    render: (...parts) => { if (!signal.aborted) fill(main, parts); },
    remember: (hash) => history.replaceState(null, '', hash),
  };
  try {
    await views[view](context);
  } catch (error) {
    if (!signal.aborted && error.name !== 'AbortError') context.render(el('h1', 'This cannot be shown'), problem(error));
  }
  if (signal.aborted) return;
  document.title = `${main.querySelector('h1')?.textContent ?? ''} - Palisade`;
  if (isNew && document.activeElement?.closest('#views')) main.focus();
  main.dataset.ready = 'true';
}

async function readStatus() {
  try {
    const status = await get('/v1/status');
    const node = status.node?.name;
    const { relay } = status;
    const behind = status.realised === status.revision ? '' : ` (in the kernel: ${status.realised})`;
    document.getElementById('agent').replaceChildren(
      relay ? `Relay ${relay.address}, ${relay.nodes} nodes · ${status.version} · ` : `${node ? `Node ${node} · ` : ''}Palisade ${status.version} · revision ${status.revision}${behind} · `,
      el('span', { class: status.health === 'Ready' ? 'allow' : 'warn', title: status.reasons.join(' ') }, status.health));
    interrupted('status');
  } catch (error) {
    interrupted('status', `Disconnected: ${error.message}. The next attempt is in ${STATUS_SECONDS} s.`);
  }
}

function move(step) {
  const links = [...main.querySelectorAll('a.row:not([hidden] *)')];
  const at = links.indexOf(document.activeElement);
  links[Math.max(0, Math.min(links.length - 1, at + step))]?.focus();
}

addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === 'Escape' && event.target.matches('input')) { main.focus(); return; }
  if (event.target.matches('input, select, textarea')) return;
  const view = document.querySelectorAll('#views a')[Number(event.key) - 1];
  if (event.key === '/') main.querySelector('[data-filter]')?.focus();
  else if (event.key === 'p') main.querySelector('[data-pause]')?.click();
  else if (event.key === 'j') move(1);
  else if (event.key === 'k') move(-1);
  else if (view) { view.focus(); view.click(); } else return;
  event.preventDefault();
});
document.getElementById('skip').addEventListener('click', (event) => { event.preventDefault(); main.focus(); });
addEventListener('hashchange', show);
readStatus();
setInterval(() => { if (!document.hidden) readStatus(); }, STATUS_SECONDS * 1000);
show();
