// All jobs of the daemon.

import {el, Table} from './dom.js';
import {count, jobAddress, number, percent, restarts, stateCell} from './words.js';

const order = ['draining', 'gathering', 'running', 'ending', 'over'];

export class Jobs {
  constructor() {
    this.title = 'Jobs';
    this.table = new Table('Jobs of this daemon', [
      {name: 'Job', cell: (row) => ({text: row.key, href: jobAddress(row.key)})},
      {name: 'Phase', short: true, cell: (row) => stateCell(row.phase)},
      {name: 'Nodes', number: true, cell: (row) => `${number((row.nodes.running ?? 0) + (row.nodes.succeeded ?? 0))} of ${
        row.nodes_min === row.nodes_max ? number(row.nodes_max) : `${number(row.nodes_min)}-${number(row.nodes_max)}`}`},
      {name: 'Trouble', cell: trouble},
      {name: 'Step', number: true, cell: (row) => number(row.step)},
      {name: 'Trained', number: true, cell: (row) => (row.goodput > 0 ? percent(row.goodput) : '-')},
      {name: 'Rounds', number: true, cell: (row) => number(row.rounds)},
      {name: 'Restarts', number: true, cell: restarts},
    ], 'No job is here. A job appears when its first node joins; one that is over stays for an hour.');
    this.node = el('div', {}, this.table.all);
  }

  update(model) {
    const rows = [...model.jobs].map(([key, row]) => ({key, ...row}));
    rows.sort((a, b) => order.indexOf(a.phase) - order.indexOf(b.phase) || (a.key < b.key ? -1 : 1));
    this.table.update(rows);
  }
}

function trouble(row) {
  const parts = [];
  if (row.nodes.lost) parts.push(`${count(row.nodes.lost, 'node')} lost`);
  if (row.ranks.overdue) parts.push(`${count(row.ranks.overdue, 'rank')} missing`);
  if (row.failures) parts.push(count(row.failures, 'failure'));
  if (parts.length === 0) return 'none';
  return {text: parts.join(', '), mark: '!', kind: row.nodes.lost || row.ranks.overdue ? 'bad' : 'care'};
}
