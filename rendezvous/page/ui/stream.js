// The stream of the daemon's news. EventSource cannot send a token, so this reads the same format with fetch().

const wordMs = 1000; // The daemon sends something each second, if it is not very busy.
const silentMs = 5 * wordMs;
const retryMs = [500, 1000, 2000, 4000];

export class Stream {
  // `heard(type, data)` per message, `changed()` when the state of the link changes.
  constructor(heard, changed) {
    Object.assign(this, {heard, changed, token: '', target: undefined, failures: 0, lastWord: 0, why: '', asks: false});
    document.addEventListener('visibilitychange', () => this.restart());
    setInterval(() => this.watch(), wordMs);
  }

  get isLive() { return this.live === true; }
  headers() { return this.token ? {Authorization: `Bearer ${this.token}`} : {}; }

  // `target()` is the address for the next attempt.
  follow(target) {
    this.target = target;
    this.restart();
  }

  // A tab in the background has no stream: browsers allow six connections to one host.
  restart() {
    clearTimeout(this.timer);
    this.abort?.abort();
    this.live = false;
    if (!document.hidden && !this.asks && this.target) this.run();
  }

  watch() {
    if (this.live && Date.now() - this.lastWord > silentMs) this.lost('');
    this.changed();
  }

  lost(why) {
    this.abort?.abort();
    this.abort = undefined;
    this.live = false;
    this.why = why;
    this.since ??= this.lastWord || Date.now();
    const wait = retryMs[Math.min(this.failures++, retryMs.length - 1)];
    this.timer = setTimeout(() => this.restart(), wait * (0.75 + Math.random() / 2));
    this.changed();
  }

  ask() {
    this.asks = true;
    this.changed();
  }

  // The person gave a token.
  answer() {
    this.asks = false;
    this.restart();
  }

  async run() {
    const abort = this.abort = new AbortController();
    // No header can have it, so it is not the daemon's.
    if (/[^!-~]/.test(this.token)) return this.ask();
    const late = setTimeout(() => abort.abort(), silentMs);
    try {
      const answer = await fetch(this.target(), {headers: this.headers(), signal: abort.signal, cache: 'no-store'});
      clearTimeout(late);
      if (abort !== this.abort) return;
      if (answer.status === 401) return this.ask();
      if (!answer.ok) {
        const why = (await answer.text()).trim();
        return abort === this.abort ? this.lost(why) : undefined;
      }
      Object.assign(this, {live: true, failures: 0, since: undefined, why: '', lastWord: Date.now()});
      this.heard('begin');
      this.changed();
      await this.read(answer.body.getReader(), abort);
      if (abort === this.abort) this.lost('');
    } catch {
      clearTimeout(late);
      if (abort === this.abort && !document.hidden && !this.asks) this.lost('');
    }
  }

  async read(reader, abort) {
    const decoder = new TextDecoder();
    let rest = '';
    for (;;) {
      const {done, value} = await reader.read();
      if (done || abort !== this.abort) return;
      this.lastWord = Date.now();
      const parts = (rest + decoder.decode(value, {stream: true})).split('\n\n');
      rest = parts.pop();
      for (const part of parts) this.take(part);
    }
  }

  take(message) {
    // Not by a regular expression with `m`: for that a line ends at U+2028 as well, which a name may have.
    const lines = message.split('\n');
    const after = (name) => lines.find((line) => line.startsWith(name))?.slice(name.length);
    const [type, data] = [after('event: '), after('data: ')];
    if (type === undefined || data === undefined) return;
    let news;
    try {
      news = JSON.parse(data);
    } catch (error) {
      return console.error(`the daemon's message '${type}' cannot be read: ${error.message}`);
    }
    this.heard(type, news);
  }
}
