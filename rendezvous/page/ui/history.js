// What happened to a job: its newest events, folded into rounds and marks for the timeline.

const eventsMax = 4000; // As many as the daemon keeps.

const reasons = {
  worker_failed: 'a worker failed', node_lost: 'a node was lost', node_left: 'a node left', node_joined: 'nodes joined',
  daemon_restarted: 'the daemon was restarted',
};
export const reasonText = (reason) => reasons[reason] ?? reason ?? '';

const markTypes = {
  'worker.failed': ['F', 'bad'], 'node.lost': ['L', 'bad'], 'node.left': ['l', 'care'], 'node.drained': ['d', 'care'],
  'node.left_out': ['x', 'care'], 'preemption.notice': ['N', 'care'], 'fault.injected': ['I', 'care'],
  'worker.late': ['!', 'care'], 'daemon.stalled': ['D', 'care'], 'hang.suspected': ['H', 'care'], 'checkpoint.failed': ['C', 'bad'],
};
export const markOf = (type) => markTypes[type];
const failures = new Set(['worker.failed', 'node.lost']);
const beginners = new Set(['round.ended', 'round.stepping', 'hang.suspected']); // Of a round, where nothing older tells of it.

export class History {
  constructor() {
    this.events = [];
    this.last = ''; // The id of the newest event, to go on from.
    this.number = 0;
  }

  add(event) {
    const type = String(event.type).replace(/^muster\.|\.v\d+$/g, '');
    this.last = event.id;
    const data = event.data ?? {};
    let text = String(data.text ?? '');
    const about = `job '${data.job}'`; // In a view of one job its name is said already.
    if (text.startsWith(`${about}: `)) text = text.slice(about.length + 2);
    else if (text.startsWith(`${about} `)) text = `the job${text.slice(about.length)}`;
    this.events.push({key: `${++this.number}`, type, at: Date.parse(event.time), data, text});
    if (this.events.length > eventsMax) this.events.splice(0, this.events.length - eventsMax);
    this.folded = undefined;
  }

  get failures() { return this.events.filter((event) => failures.has(event.type)); }
  get over() { return this.events.findLast((event) => event.type === 'job.ended'); }

  // {rounds, marks, saves, from, until}; `until` is undefined while the job runs. `running` is the number of the round that runs.
  // A round that began before the oldest event (`before`) begins with it. Its `hangs` are {from, to}; `to` is undefined while one lasts.
  fold(running) {
    if (this.folded && this.folded.running === running) return this.folded;
    const rounds = [];
    const began = this.events[0]?.at;
    const begunBefore = (number) => {
      rounds.push({key: `before ${number}`, number, began, before: true, hangs: []});
      return rounds.at(-1);
    };
    const marks = [];
    const saves = [];
    let until;
    for (const event of this.events) {
      const {type, at, data} = event;
      const open = rounds.at(-1) ?? (beginners.has(type) ? begunBefore(data.round) : undefined);
      if (type === 'round.sealed' || type === 'round.resumed') {
        if (open?.number !== data.round || open.ended) {
          rounds.push({key: event.key, number: data.round, began: at, nodes: data.nodes, hangs: []});
        }
      } else if (open && data.round === open.number) {
        if (type === 'round.stepping') open.stepped ??= at;
        if (type === 'round.ended' && !open.ended) Object.assign(open, {ended: at, reason: data.reason});
        const hang = open.hangs.findLast((one) => one.to === undefined);
        if (type === 'hang.suspected' && !hang) open.hangs.push({from: at - (data.hung_ms ?? 0)});
        if (type === 'hang.over' && hang) hang.to = at;
      }
      if (type === 'job.started') until = undefined;
      if (type === 'job.ended') {
        until = at;
        if (open && !open.ended) Object.assign(open, {ended: at, outcome: data.outcome});
      }
      if (markTypes[type]) marks.push(event);
      if (type === 'checkpoint.committed') saves.push(event);
    }
    if (running >= 0 && began !== undefined && rounds.at(-1)?.number !== running) begunBefore(running);
    this.folded = {running, rounds, marks, saves, from: began, until};
    return this.folded;
  }
}
