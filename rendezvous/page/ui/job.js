// One job: what it does, how its time was spent, what went wrong, who waits for whom, its nodes and events.

import {el, plain, say, section, show, Table} from './dom.js';
import {HeatMap, TimeSpent, Timeline} from './charts.js';
import {markOf, reasonText} from './history.js';
import {byTrouble, clock, count, duration, jobAddress, nodeAddress, number, percent, phaseSentence, ranges, ranksOf,
  restarts, stateCell, stateOf} from './words.js';

const pageRows = 50;
const eventsShown = 50;
const othersShown = 10;

export const eventColumns = [
  {name: 'Time', short: true, cell: (event) => clock(event.at)},
  {name: 'Event', short: true, cell: (event) => {
    const [letter, kind] = markOf(event.type) ?? [];
    return {text: event.type, mark: letter, kind};
  }},
  {name: 'What happened', cell: (event) => event.text},
];

export class Job {
  constructor(name) {
    this.name = name;
    this.title = `Job ${name}`;
    this.page = 0;
    this.phase = el('p', {class: 'phase', 'aria-live': 'polite'});
    this.others = el('p');
    this.facts = el('dl', {class: 'facts'});
    this.values = {};
    for (const fact of ['Step', 'Pace', 'Checkpoint', 'Trained', 'Nodes', 'Restarts', 'Failures']) {
      this.values[fact] = el('dd');
      this.facts.append(el('div', {class: fact === 'Checkpoint' && 'twice'}, el('dt', {}, fact), this.values[fact]));
    }
    this.missing = el('p', {class: 'care'});
    this.spent = new TimeSpent();
    this.timeline = new Timeline();
    this.rounds = new Table('Rounds, newest first', [
      {name: 'Round', cell: (round) => number(round.number)},
      {name: 'Began', short: true, cell: (round) => (round.before ? 'earlier' : clock(round.began))},
      {name: 'Nodes', number: true, cell: (round) => number(round.nodes)},
      {name: 'First step after', number: true, cell: (round) => (round.stepped && !round.before ? duration((round.stepped - round.began) / 1000) : '-')},
      {name: 'Lasted', number: true, cell: (round) => (round.ended ? `${round.before ? 'over ' : ''}${duration((round.ended - round.began) / 1000)}` : 'runs')},
      {name: 'Ended because', cell: (round) => reasonText(round.reason) || (round.outcome ? `the job ${round.outcome}` : '')},
    ], 'No round began yet.');
    this.waits = el('ul', {class: 'waits'});
    this.failures = new Table('Failures, newest first', [
      {name: 'Time', short: true, cell: (event) => clock(event.at)},
      {name: 'Where', cell: (event) => [event.data.rank === undefined ? '' : `rank ${event.data.rank}`, event.data.host]
        .filter(Boolean).join(' on ')},
      {name: 'Cause', cell: (event) => (event.data.cause ?? event.data.kind ?? event.type).replaceAll('_', ' ')},
      {name: 'What happened', cell: (event) => event.text},
    ], 'None among the newest events.');
    this.events = new Table(`The newest ${eventsShown} events`, eventColumns, 'None yet.');
    this.waitsPart = section('Who waits for whom', this.waits);
    this.parts = el('div', {}, this.missing, this.facts, this.waitsPart, section('Time', this.spent.node),
      section('Timeline', this.timeline.node, this.rounds.all), section('Failures', this.failures.all), this.nodesPart(),
      section('Events', this.events.all));
    this.node = el('div', {}, this.phase, this.others, this.parts);
  }

  nodesPart() {
    this.heat = new HeatMap((node) => { location.hash = nodeAddress(this.name, node.key); });
    this.filter = el('input', {id: 'filter', type: 'search', autocomplete: 'off', spellcheck: 'false'});
    this.filter.addEventListener('input', () => { this.page = 0; this.showNodes(); });
    this.before = el('button', {type: 'button'}, 'Previous');
    this.after = el('button', {type: 'button'}, 'Next');
    this.before.addEventListener('click', () => { --this.page; this.showNodes(); });
    this.after.addEventListener('click', () => { ++this.page; this.showNodes(); });
    this.where = el('span');
    this.nodes = new Table('Nodes, those in trouble first', [
      {name: 'Node', cell: (node) => ({text: node.host, href: nodeAddress(this.name, node.key)})},
      {name: 'State', short: true, cell: (node) => stateCell(stateOf(node))},
      {name: 'Ranks', short: true, cell: (node) => ranksOf(node)},
      {name: 'Agent pid', number: true, cell: (node) => node.pid},
      {name: 'Silent', number: true, cell: (node) => (node.silent_s ? duration(node.silent_s) : '-')},
    ], 'No node.');
    this.pages = el('p', {class: 'pages'}, this.before, this.where, this.after);
    return section('Nodes', el('div', {}, this.heat.node),
      el('p', {}, el('label', {for: 'filter'}, 'Host or state contains '), this.filter), this.nodes.all, this.pages);
  }

  update(model, changed) {
    this.model = model;
    const row = model.jobs.get(this.name);
    show(this.parts, Boolean(row));
    this.showOthers(row ? [] : [...model.jobs.keys()].slice(0, othersShown));
    if (!row) {
      return say(this.phase, `This daemon has no job ${plain(this.name)}. It may have ended more than an hour ago, or have another name.`);
    }
    const detail = {...model.detail, over_text: model.history.over?.text};
    say(this.phase, phaseSentence(row, detail));
    this.showFacts(row, model);
    // While the job waits for nodes, its phase names them already.
    const missing = detail.waiting_for?.includes(detail.missing_hosts) ? '' : detail.missing_hosts;
    show(this.missing, Boolean(missing));
    say(this.missing, `Not here: ${missing ?? ''}.`);
    this.spent.update(detail.goodput);
    const fold = model.history.fold(row.phase === 'running' ? detail.round : undefined);
    this.timeline.update(fold, model.now());
    if (changed.has('happened')) {
      this.rounds.update(fold.rounds.slice(-20).reverse());
      this.failures.update(model.history.failures.slice(-50).reverse());
      this.events.update(model.history.events.slice(-eventsShown).reverse());
    }
    if (changed.has('nodes')) {
      this.showNodes();
      this.showWaits();
    }
  }

  // Links to jobs that the daemon has. They are kept while the names are the same, and with them the focus.
  showOthers(names) {
    show(this.others, names.length > 0);
    const parts = ['It has: ', ...names.flatMap((name, i) => [i ? ', ' : '', el('a', {href: jobAddress(name)}, name)])];
    if (this.others.textContent !== el('p', {}, ...parts).textContent) this.others.replaceChildren(...parts);
  }

  showFacts(row, model) {
    const set = (fact, value) => say(this.values[fact], value);
    const step = row.phase === 'over' ? model.history.over?.data.step ?? row.step : row.step;
    set('Step', step === undefined ? 'not reported' : number(step));
    const rates = row.phase === 'running' ? {'steps/s': model.pace, 'samples/s': model.detail.samples_per_second} : {};
    set('Pace', Object.entries(rates).filter(([, rate]) => rate)
      .map(([unit, rate]) => `${number(Number(rate.toPrecision(3)))} ${unit}`).join(', ') || '-');
    set('Checkpoint', checkpointText(row, model.detail.checkpoints ?? {}));
    set('Trained', row.goodput > 0 ? percent(row.goodput) : '-');
    set('Nodes', Object.entries(row.nodes).map(([place, many]) => `${number(many)} ${place}`).join(', ') || 'none');
    set('Restarts', restarts(row));
    set('Failures', number(row.failures));
  }

  showNodes() {
    const all = [...this.model.nodes].map(([key, node]) => ({key, ...node}));
    const wanted = this.filter.value.trim().toLowerCase();
    const found = all.filter((node) => !wanted || `${node.host} ${stateOf(node)}`.toLowerCase().includes(wanted)).sort(byTrouble);
    const last = Math.max(0, Math.ceil(found.length / pageRows) - 1);
    this.page = Math.min(Math.max(this.page, 0), last);
    const from = this.page * pageRows;
    this.nodes.update(found.slice(from, from + pageRows));
    show(this.pages, last > 0);
    say(this.where, ` ${from + 1} to ${Math.min(from + pageRows, found.length)} of ${number(found.length)} `);
    this.before.disabled = this.page === 0;
    this.after.disabled = this.page === last;
    show(this.heat.node, all.length > 8);
    if (all.length > 8) this.heat.update(all);
  }

  showWaits() {
    const sentences = waitSentences([...this.model.nodes.values()]);
    show(this.waitsPart, sentences.length > 0);
    this.waits.replaceChildren(...sentences.map((one) => el('li', {class: one.kind}, one.text)));
  }
}

const tiers = {memory: 'in memory', neighbour: 'in neighbours\' memory', local: 'on local disks', shared: 'in the checkpoint directory'};

// The newest of each tier with its age, where the agents report them; else the newest one that is known.
function checkpointText(row, checkpoints) {
  const told = Object.entries(tiers).filter(([tier]) => checkpoints[tier]).map(([tier, place]) => {
    const {step, age_s: age} = checkpoints[tier];
    return `step ${number(step)} ${place}${age === undefined ? '' : age ? ` (${duration(age)} ago)` : ' (now)'}`;
  });
  return told.join(', ') || (row.checkpoint_step === undefined ? '-' : `step ${number(row.checkpoint_step)}`);
}

export function waitSentences(nodes) {
  const late = [];
  const waiting = new Map();
  for (const node of nodes) {
    for (const rank of node.overdue ?? []) {
      late.push({kind: 'bad', text: `Rank ${rank.rank} on ${node.host} is missing${rank.place ? ` in ${rank.place}` : ''}, ` +
        `idle for ${duration(rank.idle_ms / 1000)}${rank.operation ? `, after ${rank.operation}` : ''}.`});
    }
    for (const rank of node.waiting ?? []) {
      if (!waiting.has(rank.operation)) waiting.set(rank.operation, []);
      waiting.get(rank.operation).push(rank.rank);
    }
  }
  for (const [operation, ranks] of waiting) {
    late.push({kind: 'calm', text: `${ranks.length === 1 ? 'Rank' : 'Ranks'} ${ranges(ranks)} ${ranks.length === 1 ? 'waits' : 'wait'}` +
      ` in ${operation || 'an operation'}.`});
  }
  return late.slice(0, 50);
}

