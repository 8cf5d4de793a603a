// The daemon itself: what it says of itself, and its metrics that are not a job's.

import {el, say, section, show, Table} from './dom.js';
import {clock, duration, number} from './words.js';

const readMs = 10_000;
const facts = [
  ['Version', (daemon) => daemon.version],
  ['Host', (daemon) => daemon.host],
  ['Runs since', (daemon, now) => (daemon.started_ms ? `${clock(daemon.started_ms)} (${duration((now - daemon.started_ms) / 1000)})` : '-')],
  ['Who may join', (daemon) => ({key: 'nodes with the key', 'local users': 'users of its host', none: 'everyone'}[daemon.auth] ?? daemon.auth)],
  ['Viewers of this page', (daemon) => `${number(daemon.viewers)} of ${number(daemon.viewers_max)}`],
];

export class Daemon {
  constructor(stream) {
    Object.assign(this, {stream, title: 'Daemon', read: -Infinity});
    this.state = el('p', {class: 'phase', 'aria-live': 'polite'});
    this.values = facts.map(() => el('dd'));
    this.table = new Table('Metrics of the daemon', [
      {name: 'Metric', cell: (row) => row.key},
      {name: 'Value', number: true, cell: (row) => row.value},
      {name: 'Meaning', cell: (row) => row.help},
    ], 'Not read yet.');
    this.node = el('div', {}, this.state, el('dl', {class: 'facts'},
      ...facts.map(([name], i) => el('div', {}, el('dt', {}, name), this.values[i]))), section('Metrics', this.table.all));
  }

  update(model) {
    const {daemon} = model;
    say(this.state, stateSentence(daemon));
    facts.forEach(([, value], i) => say(this.values[i], value(daemon, model.now())));
    if (performance.now() - this.read < readMs || !this.stream.isLive) return;
    this.read = performance.now();
    this.readMetrics();
  }

  async readMetrics() {
    try {
      const answer = await fetch('/metrics', {headers: this.stream.headers(), cache: 'no-store'});
      if (answer.ok) this.table.update(rowsOf(await answer.text()));
    } catch { /* The stream tells that the daemon is away. */ }
  }
}

export function stateSentence(daemon) {
  if (daemon.standby) return `It stands by; ${daemon.leader ? `the leader is ${daemon.leader}, whose page has the jobs` : 'no leader is known'}.`;
  if (daemon.state_stalled) return `It cannot write its state: ${daemon.state_stalled.why}`;
  return daemon.embedded ? 'It is part of a launcher, and ends with its job.' : 'It serves.';
}

// Families with a series that has no job.
function rowsOf(text) {
  const help = new Map();
  const rows = [];
  for (const line of text.split('\n')) {
    const told = /^# HELP (\S+) (.*)$/.exec(line);
    if (told) help.set(told[1], told[2]);
    const series = /^([a-z_]+)((?:\{[^}]*\})?) (\S+)$/.exec(line);
    if (series && !series[2].includes('job=')) {
      rows.push({key: series[1] + series[2], value: number(Number(series[3])), help: help.get(series[1])});
    }
  }
  return rows;
}
