// Elements and tables. All that comes from the daemon is put in as text: names of jobs and hosts are chosen by others.

const svgTags = new Set(['svg', 'rect', 'text', 'line', 'path', 'title', 'g']);

// Characters that are invisible, or that change the direction of the text around them.
const unseen = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

export const plain = (value) => String(value ?? '').replace(unseen, '\ufffd');

export function el(tag, attributes = {}, ...children) {
  const node = svgTags.has(tag) ? document.createElementNS('http://www.w3.org/2000/svg', tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) node.setAttribute(name, value === true ? '' : plain(value));
  }
  for (const child of children) node.append(child instanceof Node ? child : plain(child));
  return node;
}

// Writes only what differs, so that a screen reader and a selection are left alone.
export function say(node, text) {
  const shown = plain(text);
  if (node.textContent !== shown) node.textContent = shown;
}

export function show(node, is) {
  if (node.hidden === is) node.hidden = !is;
}

export function section(title, ...children) {
  return el('section', {}, el('h2', {}, title), ...children);
}

// A table whose rows are kept and patched. A column: {name, cell(row), number, short}: short texts are not broken. A cell is a text, or
// {text, href, mark, kind}: `mark` is a letter before the text, so that colour is never the only sign.
export class Table {
  constructor(caption, columns, empty) {
    this.columns = columns;
    this.empty = empty;
    this.rows = new Map();
    this.body = el('tbody');
    const head = el('tr', {}, ...columns.map((one) => el('th', {scope: 'col', class: classOf(one)}, one.name)));
    this.node = el('div', {class: 'wide', role: 'region', tabindex: 0, 'aria-label': caption},
      el('table', {}, el('caption', {}, caption), el('thead', {}, head), this.body));
    this.none = el('p', {class: 'quiet'}, empty);
    this.all = el('div', {}, this.node, this.none);
  }

  // `rows` have a `key` each.
  update(rows) {
    const focused = document.activeElement;
    const wanted = new Set(rows.map((row) => row.key));
    for (const [key, row] of this.rows) {
      if (!wanted.has(key)) {
        row.remove();
        this.rows.delete(key);
      }
    }
    let place = this.body.firstChild;
    for (const row of rows) {
      let line = this.rows.get(row.key);
      if (!line) {
        line = el('tr', {}, ...this.columns.map((one, i) =>
          el(i === 0 ? 'th' : 'td', {scope: i === 0 && 'row', class: classOf(one)})));
        this.rows.set(row.key, line);
      }
      if (line === place) place = place.nextSibling;
      else this.body.insertBefore(line, place);
      this.columns.forEach((one, i) => fill(line.children[i], one.cell(row)));
    }
    show(this.node, rows.length > 0);
    show(this.none, rows.length === 0);
    if (focused !== document.activeElement && focused.isConnected) focused.focus({preventScroll: true});
  }
}

const classOf = (column) => (column.number ? 'number' : column.short && 'short');

function fill(place, cell) {
  const {text, href, mark, kind} = typeof cell === 'object' && cell !== null ? cell : {text: cell};
  const state = [plain(text), href, mark, kind].join('\n');
  if (place.shown === state) return;
  place.shown = state;
  const inner = href ? el('a', {href}, text) : el('bdi', {}, text);
  // An address that changes keeps the link, and with it the focus.
  const old = place.querySelector('a');
  if (old && href) {
    old.setAttribute('href', href);
    say(old, text);
    return;
  }
  place.replaceChildren(...(mark ? [el('span', {class: `mark ${kind ?? ''}`, 'aria-hidden': 'true'}, mark)] : []), inner);
}
