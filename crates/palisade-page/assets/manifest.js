// The text of a policy as it was written, with the lines of some rules marked.

import { get } from '/api.js';
import { el, objectName, remark } from '/elements.js';

export async function manifest(ref, marks, signal) {
  let found;
  try {
    found = await get('/v1/manifest', { policy: [ref.kind, ref.namespace, ref.name].filter(Boolean).join('/') }, signal);
  } catch (error) {
    return remark(`The manifest cannot be shown: ${error.message}`);
  }
  const marked = found.rules.filter((rule) => marks.some(({ rule: wanted }) => wanted?.direction === rule.direction && wanted.index === rule.index));
  const lines = found.text.replace(/\n$/, '').split('\n').map((text, at) => {
    const line = found.firstLine + at;
    return el('span', { class: marked.some((rule) => rule.first <= line && line <= rule.last) && 'mark', 'data-line': line }, `${text}\n`);
  });
  return [!found.inForce && el('p', { class: 'warn' }, 'The text was changed since it was read: it is not what is in force.'),
    el('pre', { tabindex: 0, 'aria-label': `Manifest of ${objectName(ref)}` }, lines)];
}
