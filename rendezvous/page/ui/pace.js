// How fast a job steps.

const reportMs = 15_000; // Between two reports of an agent the step does not change.

export class Pace {
  constructor() { this.clear(); }
  clear() { this.seen = []; }

  // `at` is a time in ms of a clock that does not jump.
  note(step, at) {
    const last = this.seen.at(-1)?.step;
    if (step === undefined || step === last) return;
    if (step < last) this.clear();
    this.seen.push({step, at});
    if (this.seen.length > 3) this.seen.shift();
  }

  // Steps per second, from the last two that were seen to come. The first one of all may be old.
  perSecond(at) {
    if (this.seen.length < 3) return undefined;
    const [, from, to] = this.seen;
    return 1000 * (to.step - from.step) / Math.max(to.at - from.at, at - reportMs - from.at);
  }
}
