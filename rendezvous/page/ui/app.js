// The page: which view is shown, what is known, and whether the daemon still answers.

import {el, plain, say, show} from './dom.js';
import {Daemon, stateSentence} from './daemon.js';
import {History} from './history.js';
import {Job} from './job.js';
import {Jobs} from './jobs.js';
import {Node as NodeView} from './node.js';
import {Pace} from './pace.js';
import {Stream} from './stream.js';
import {clock, duration} from './words.js';

const byId = (id) => document.getElementById(id);
const model = {daemon: {}, jobs: new Map(), nodes: new Map(), detail: {}, history: new History(), skew: 0,
  now: () => Date.now() + model.skew};
let view;
const pace = new Pace(); // Of the job that is watched.
let watched; // The job whose nodes and events are streamed.
let known = false; // The first news is here.
const changed = new Set();

// The token is taken out of the address at once, so that no history, bookmark or screenshot has it.
function takeToken() {
  const given = /^#token=([^&]*)&?(.*)$/.exec(location.hash);
  if (!given) return;
  stream.token = decode(given[1]);
  history.replaceState(null, '', `${location.pathname}#${given[2] || '/'}`);
  if (stream.asks) stream.answer();
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function heard(type, data) {
  switch (type) {
    case 'begin': return pace.clear();
    case 'clock':
      model.skew = data.now_ms - Date.now();
      break;
    case 'daemon':
      model.daemon = data;
      break;
    case 'jobs':
      pace.note(data.rows?.[watched]?.step, performance.now());
      apply(model.jobs, data);
      break;
    case 'nodes':
      apply(model.nodes, data);
      break;
    case 'job':
      model.detail = data ?? {};
      break;
    case 'happened':
      model.history.add(data);
      break;
    default: return; // Of a newer daemon.
  }
  // A job is shown when its own news is here, not with that of the job before.
  if (type === (watched === undefined ? 'jobs' : 'job')) known = true;
  changed.add(type);
  draw();
}

function apply(rows, {whole, rows: newer, gone}) {
  if (whole) rows.clear();
  for (const [key, row] of Object.entries(newer)) rows.set(key, row);
  for (const key of gone ?? []) rows.delete(key);
}

let drawing = false;
function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    if (!known || !view) return;
    if (!view.node.isConnected) open();
    model.pace = pace.perSecond(performance.now());
    view.update(model, changed);
    changed.clear();
    say(view.heading, view.title);
    document.title = `${plain(view.title)} - muster`;
  });
}

function open() {
  view.heading = el('h1', {tabindex: -1});
  byId('main').replaceChildren(view.heading, view.node);
  for (const part of ['daemon', 'jobs', 'job', 'nodes', 'happened']) changed.add(part);
}

function go() {
  takeToken();
  const parts = location.hash.replace(/^#\/?/, '').split('/').map(decode);
  const job = parts[0] === 'jobs' && parts[1] ? parts[1] : undefined;
  if (parts[0] === 'daemon') view = new Daemon(stream);
  else if (job !== undefined && parts[2] === 'nodes' && parts[3]) view = new NodeView(job, parts[3]);
  else view = job === undefined ? new Jobs() : new Job(job);
  setCurrent('to-jobs', parts[0] !== 'daemon');
  setCurrent('to-daemon', parts[0] === 'daemon');
  if (job !== watched || !stream.target) {
    watched = job;
    known = false;
    Object.assign(model, {nodes: new Map(), detail: {}, history: new History()});
    pace.clear();
    follow();
  }
  draw();
}

function setCurrent(id, is) {
  if (is) byId(id).setAttribute('aria-current', 'page');
  else byId(id).removeAttribute('aria-current');
}

function follow() {
  const job = watched === undefined ? '' : `?job=${encodeURIComponent(watched)}`;
  // A stream that begins again goes on behind the last event that is here.
  const after = () => (watched !== undefined && model.history.last ? `&after=${encodeURIComponent(model.history.last)}` : '');
  stream.follow(() => `/api/v1/stream${job}${after()}`);
}

// What the person has to know of the link: whether what stands here is the present.
function linkChanged() {
  show(byId('ask'), stream.asks);
  show(byId('main'), !stream.asks);
  const link = byId('link');
  link.classList.toggle('bad', !stream.isLive);
  if (stream.isLive) say(link, 'live');
  else say(link, stream.asks ? 'needs a token' : stream.lastWord ? 'not live' : 'connecting');
  const away = Math.round((Date.now() - (stream.since ?? Date.now())) / 1000);
  const lost = !stream.isLive && !stream.asks && stream.since !== undefined;
  const [what, long] = byId('trouble').children;
  let text = '';
  if (lost) {
    text = stream.why || `No word from the daemon since ${clock(stream.since)}. The page shows the last state, and goes on by itself ` +
      'when the daemon is back.';
  }
  else if (stream.asks && stream.token) text = 'This token is not the daemon\'s.';
  else if (model.daemon.standby || model.daemon.state_stalled) text = stateSentence(model.daemon);
  say(what, text);
  say(long, lost ? ` Away for ${duration(away)}.` : '');
  show(byId('trouble'), text !== '');
  draw();
}

const stream = new Stream(heard, linkChanged);
byId('skip').addEventListener('click', (event) => { event.preventDefault(); byId('main').focus(); });
byId('ask').addEventListener('submit', (event) => {
  event.preventDefault();
  stream.token = byId('token').value.trim();
  byId('token').value = '';
  stream.answer();
});
window.addEventListener('hashchange', () => {
  go();
  byId('main').focus({preventScroll: true});
});
go();
