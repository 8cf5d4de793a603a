// One node of a job.

import {el, say, section, show, Table} from './dom.js';
import {eventColumns, waitSentences} from './job.js';
import {count, duration, jobAddress, number, ranksOf, stateOf} from './words.js';

const facts = [
  ['State', stateOf],
  ['Agent', (node) => `pid ${node.pid}`],
  ['Ranks', ranksOf],
  ['Number in the round', (node) => node.group_rank ?? '-'],
  ['Workers', (node) => node.slots],
  ['Role', (node) => node.role],
  ['Standby processes', (node) => (node.standbys ? `${count(node.standbys.count, 'process', 'processes')}, ${
    number(Math.floor(node.standbys.memory_bytes / 2 ** 20))} MiB of memory` : 'none')],
  ['GPU use', (node) => node.gpus?.map((gpu) => `GPU ${gpu.index} ${gpu.busy_percent} %`).join(', ')],
  ['Connection', (node) => (node.connected ? 'open' : 'lost')],
  ['Last word', (node) => (node.silent_s ? `${duration(node.silent_s)} ago` : 'now')],
];

export class Node {
  constructor(job, key) {
    Object.assign(this, {job, key, title: 'Node'});
    this.state = el('p', {class: 'phase', 'aria-live': 'polite'});
    this.values = facts.map(() => el('dd'));
    this.list = el('dl', {class: 'facts'}, ...facts.map(([name], i) => el('div', {}, el('dt', {}, name), this.values[i])));
    this.waits = el('ul', {class: 'waits'});
    this.events = new Table('Events of this host, newest first', eventColumns, 'None.');
    this.node = el('div', {}, el('p', {}, el('a', {href: jobAddress(job)}, `Job ${job}`)), this.state, this.list,
      this.waitsPart = section('Workers in trouble', this.waits), section('Events', this.events.all));
  }

  update(model) {
    const node = model.nodes.get(this.key) ?? this.last;
    show(this.list, Boolean(node));
    if (!node) {
      say(this.state, 'This node is not, or no longer, in the job.');
      return show(this.waitsPart, false);
    }
    this.last = node;
    this.title = `Node ${node.host}`;
    say(this.state, model.nodes.has(this.key) ? `It is ${stateOf(node)}.` : 'It is no longer in the job; this was its last state.');
    facts.forEach(([, value], i) => {
      say(this.values[i], value(node) ?? '');
      show(this.values[i].parentNode, value(node) !== undefined);
    });
    const sentences = waitSentences([node]);
    show(this.waitsPart, sentences.length > 0);
    this.waits.replaceChildren(...sentences.map((one) => el('li', {class: one.kind}, one.text)));
    this.events.update(model.history.events.filter((event) => event.data.host === node.host).slice(-50).reverse());
  }
}
