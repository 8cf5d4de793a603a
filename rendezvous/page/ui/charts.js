// Pictures of what the tables beside them say in words.

import {el, plain, say} from './dom.js';
import {clock, count, duration, kind, percent, stateOf} from './words.js';
import {markOf, reasonText} from './history.js';

const width = 1000;

// Rounds as bars over time, in the colours of the time spent. Marks above them are what went wrong, those below them checkpoints.
export class Timeline {
  constructor() {
    this.svg = el('svg', {class: 'timeline', role: 'img', viewBox: `0 0 ${width} 64`, preserveAspectRatio: 'none'});
    this.node = el('div', {}, this.svg, this.legend = el('p', {class: 'ends'}, el('span'),
      el('span', {}, 'Bars are rounds. Marks above them are failures, hangs and notices, those below checkpoints.'), el('span')));
  }

  update({rounds, marks, saves, from, until}, now) {
    if (from === undefined) return this.svg.replaceChildren();
    const end = Math.max(until ?? now, from + 1000);
    const x = (at) => Math.max(0, Math.min(width, width * (at - from) / (end - from)));
    const parts = [];
    for (const round of rounds) {
      const [left, right] = [x(round.began), x(round.ended ?? end)];
      const steps = round.stepped ? x(round.stepped) : right;
      const title = `Round ${round.number}, ${clock(round.began)}, ${duration(((round.ended ?? end) - round.began) / 1000)}` +
        (round.reason ? `: ended because ${reasonText(round.reason)}` : '');
      parts.push(el('g', {}, el('title', {}, title),
        el('rect', {class: round.stepped ? 'starting' : round.ended || round.before ? 'unmeasured' : 'pending', x: left, y: 24, height: 28,
          width: Math.max(1, steps - left)}),
        el('rect', {class: 'stepping', x: steps, y: 24, height: 28, width: Math.max(0, right - steps)}),
        ...round.hangs.map((hang) => {
          const [begin, over] = [Math.max(round.stepped ? steps : left, x(hang.from)), Math.min(right, x(hang.to ?? end))];
          return el('rect', {class: 'hung', x: begin, y: 24, height: 28, width: Math.max(1, over - begin)});
        }),
        el('rect', {class: 'edge', x: right - 1, y: 24, height: 28, width: 2})));
    }
    // Marks that would cover one another are one.
    const put = (events, y, height, wide) => {
      let last = -20;
      for (const mark of events) {
        const at = x(mark.at);
        if (at - last < 2 * wide) continue;
        last = at;
        parts.push(el('g', {class: markOf(mark.type)?.[1] ?? 'calm'}, el('title', {}, `${clock(mark.at)} ${mark.text}`),
          el('rect', {class: 'mark', x: at - wide / 2, y, width: wide, height})));
      }
    };
    put(marks, 4, 16, 6);
    put(saves, 54, 8, 2);
    this.svg.replaceChildren(...parts);
    this.svg.setAttribute('aria-label', plain(`${count(rounds.length, 'round')} in ${duration((end - from) / 1000)}, ` +
      `${count(marks.length, 'mark')}, ${count(saves.length, 'checkpoint')}. The tables below say the same.`));
    const [first, , second] = this.legend.children;
    say(first, clock(from));
    say(second, until ? clock(until) : 'now');
  }
}

const buckets = [
  ['stepping', 'trained'], ['unmeasured', 'ran, steps not reported'], ['pending', 'running, not yet counted'],
  ['queued', 'in the queue'], ['waiting_nodes', 'waiting for nodes'], ['starting', 'starting'],
  ['loading_checkpoint', 'loading checkpoints'], ['data_wait', 'waiting for data'],
  ['checkpoint_blocked', 'blocked by checkpoints'], ['hung', 'hung'], ['detecting', 'until failures were known'],
  ['stopping', 'stopping after a failure'], ['reconfiguring', 'changing nodes'],
];

// How the time was spent: one bar, and the same as a list.
export class TimeSpent {
  constructor() {
    this.parts = new Map();
    this.bars = el('svg', {class: 'spent', viewBox: `0 0 ${width} 20`, preserveAspectRatio: 'none', 'aria-hidden': 'true'});
    this.lost = el('li', {}, 'of the trained time lost with steps after a checkpoint ', el('b'));
    this.node = el('div', {}, this.bars, el('ul', {class: 'legend'}, this.lost));
    for (const [name, label] of buckets) this.add(name, name, label);
  }

  add(name, style, label) {
    const bar = el('rect', {class: style, y: 0, height: 20});
    const item = el('li', {}, el('span', {class: `swatch ${style}`, 'aria-hidden': 'true'}), `${label} `, el('b'));
    this.bars.append(bar);
    this.lost.before(item);
    this.parts.set(name, [bar, item]);
  }

  update(spent = {}) {
    const prefix = 'section:';
    for (const name of Object.keys(spent)) {
      if (name.startsWith(prefix) && !this.parts.has(name)) this.add(name, 'section', `in section ${name.slice(prefix.length)}`);
    }
    const whole = spent.wall_clock || 1;
    let x = 0;
    for (const [name, [bar, item]] of this.parts) {
      const seconds = spent[name] ?? 0;
      const part = width * seconds / whole;
      bar.setAttribute('x', x);
      bar.setAttribute('width', part);
      x += part;
      item.hidden = !(seconds > 0);
      say(item.querySelector('b'), `${duration(seconds)}, ${percent(seconds / whole)}`);
    }
    this.lost.hidden = !(spent.lost_work > 0);
    say(this.lost.querySelector('b'), `${duration(spent.lost_work)}, ${count(spent.lost_steps, 'step')}`);
  }
}

// One cell a node, in the order of their ranks. The table of nodes is for all who cannot see or click it.
export class HeatMap {
  constructor(chosen) {
    this.node = el('canvas', {class: 'heat', 'aria-hidden': 'true'});
    this.node.addEventListener('click', (event) => {
      const {size, columns} = this;
      const node = this.nodes?.[Math.floor(event.offsetY / size) * columns + Math.floor(event.offsetX / size)];
      if (node) chosen(node);
    });
  }

  update(nodes) {
    this.nodes = [...nodes].sort((a, b) => (a.group_rank ?? 1e9) - (b.group_rank ?? 1e9));
    const wide = this.node.parentElement?.clientWidth || 600;
    this.size = nodes.length > 4000 ? 8 : nodes.length > 400 ? 12 : 20;
    this.columns = Math.max(1, Math.floor(wide / this.size));
    const rows = Math.ceil(nodes.length / this.columns);
    const scale = window.devicePixelRatio || 1;
    this.node.width = this.columns * this.size * scale;
    this.node.height = rows * this.size * scale;
    this.node.style.width = `${this.columns * this.size}px`;
    this.node.style.height = `${rows * this.size}px`;
    const style = getComputedStyle(document.body);
    const colours = new Map();
    const pen = this.node.getContext('2d');
    pen.scale(scale, scale);
    this.nodes.forEach((node, i) => {
      const state = kind(stateOf(node));
      if (!colours.has(state)) colours.set(state, style.getPropertyValue(`--${state}`));
      pen.fillStyle = colours.get(state);
      pen.fillRect((i % this.columns) * this.size, Math.floor(i / this.columns) * this.size, this.size - 1, this.size - 1);
    });
  }
}
