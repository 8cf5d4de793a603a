// Numbers, times and states as words.

export const count = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;
export const number = (value) => (value === undefined || value === null ? '-' : Number(value).toLocaleString('en'));
export const percent = (part) => `${(100 * part).toFixed(1)} %`;

// Of the budget. With a window, fewer of them count than there were.
export function restarts(row) {
  const counted = row.restarts_max - row.restarts_left;
  return `${number(counted)} of ${number(row.restarts_max)}${row.restarts_used > counted ? `, ${number(row.restarts_used)} in all` : ''}`;
}

export function duration(seconds) {
  if (!(seconds >= 0)) return '-';
  if (seconds < 10) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 2 * 3600) return `${Math.round(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60) % 60} min`;
}

export function clock(ms) {
  const at = new Date(ms);
  const time = at.toLocaleTimeString('en-GB');
  return at.toDateString() === new Date().toDateString() ? time : `${at.toLocaleDateString('en-CA')} ${time}`;
}

// A letter and a class for each state of a node and phase of a job: colour is never the only sign.
const marks = {
  running: ['R', 'good'], succeeded: ['S', 'good'], waiting: ['w', 'calm'], gathering: ['g', 'calm'], parked: ['p', 'calm'],
  draining: ['d', 'care'], ending: ['e', 'calm'], over: ['o', 'calm'], lost: ['L', 'bad'], overdue: ['!', 'bad'],
  'left out': ['x', 'care'], silent: ['?', 'care'],
};
export const mark = (state) => (marks[state] ?? ['?', 'calm'])[0];
export const kind = (state) => (marks[state] ?? ['?', 'calm'])[1];
export const stateCell = (state) => ({text: state, mark: mark(state), kind: kind(state)});

// What is worst about a node.
export function stateOf(node) {
  if (node.place === 'lost') return 'lost';
  if (node.overdue) return 'overdue';
  if (node.left_out) return 'left out';
  if (node.silent_s || (!node.connected && node.place !== 'succeeded')) return 'silent';
  return node.place;
}
const order = ['lost', 'overdue', 'silent', 'left out', 'draining', 'waiting', 'parked', 'running', 'succeeded'];
export const byTrouble = (a, b) => order.indexOf(stateOf(a)) - order.indexOf(stateOf(b)) ||
  (a.group_rank ?? 1e9) - (b.group_rank ?? 1e9) || (a.host < b.host ? -1 : a.host > b.host ? 1 : 0);

// "0-3, 5" of sorted or unsorted numbers.
export function ranges(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const parts = [];
  for (let i = 0; i < sorted.length;) {
    let last = i;
    while (sorted[last + 1] === sorted[last] + 1) ++last;
    parts.push(last === i ? `${sorted[i]}` : `${sorted[i]}-${sorted[last]}`);
    i = last + 1;
  }
  return parts.length > 12 ? `${parts.slice(0, 12).join(', ')} and more` : parts.join(', ');
}

export const ranksOf = (node) => (node.rank_base === undefined || !node.slots ? '-'
  : ranges([node.rank_base, node.rank_base + node.slots - 1].slice(0, node.slots)).replace(', ', '-'));

export const jobAddress = (job) => `#/jobs/${encodeURIComponent(job)}`;
export const nodeAddress = (job, key) => `${jobAddress(job)}/nodes/${encodeURIComponent(key)}`;

// One sentence: what the job does now.
export function phaseSentence(row, detail) {
  const round = detail.round >= 0 ? `Round ${number(detail.round)}` : 'The first round';
  const waits = detail.waiting_for ? `; waits for ${detail.waiting_for}` : '';
  const running = row.nodes.running ?? 0;
  switch (row.phase) {
    case 'running': return `${round} runs on ${count(running + (row.nodes.succeeded ?? 0), 'node')}${waits}.`;
    case 'gathering': return `Gathers nodes: ${count(row.nodes.waiting ?? 0, 'has', 'have')} joined${waits}.`;
    case 'draining': return `${round} has ended${waits}.`;
    case 'ending': return `The job ends${waits}.`;
    default: return `${(detail.over_text ?? 'the job is over').replace(/^t/, 'T')}.`;
  }
}
