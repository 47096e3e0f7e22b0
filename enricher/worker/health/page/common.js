// Formats numbers, fills in the status, polls, and says so when there is no answer.

const ASK_EVERY_MS = 2000, ANSWER_MS = 8000, KEPT_S = 900;
const NONE = '–';

const significant = value => value.toLocaleString('en', {maximumSignificantDigits: 3});
const FORMATS = {
  text: String,
  count: value => Math.round(value).toLocaleString('en'),
  rate: value => value >= 1000 ? FORMATS.count(value) : significant(value),
  share: value => `${(100 * value).toLocaleString('en', {maximumFractionDigits: 1})} %`,
  bytes: value => {
    const step = Math.min(4, Math.floor(Math.log2(Math.max(1, value)) / 10));
    return `${significant(value / 2 ** (10 * step))} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][step]}`;
  },
  seconds: value => {
    if (value < 1) return value ? `${significant(1000 * value)} ms` : '0 s';
    if (value < 10) return `${significant(value)} s`;
    if (value < 120) return `${Math.round(value)} s`;
    const minutes = Math.round(value / 60);
    if (minutes < 100) return `${minutes} min`;
    const hours = Math.round(value / 3600);
    return hours < 100 ? `${hours} h` : `${Math.round(value / 86400)} d`;
  },
};

const byId = id => document.getElementById(id);
const format = (value, as = 'text') => value === null || value === undefined ? NONE : FORMATS[as](value);
const at = (status, path) => path.split('.').reduce((value, name) => value?.[name], status);
const clock = unixS => new Date(1000 * unixS).toLocaleTimeString('en-GB');

function put(element, text) {  // only if it changed, so that a reader's selection is kept
  if (element.textContent !== text) element.textContent = text;
}

function create(name, text = '', classes = '') {
  const element = document.createElement(name);
  element.textContent = text;
  if (classes) element.className = classes;
  return element;
}

// An element with `data-show` shows that part of the status; `data-most` names the highest value that can be measured.
function fill(status) {
  for (const element of document.querySelectorAll('[data-show]')) {
    const {show, as, most} = element.dataset, value = at(status, show);
    const beyond = most && value !== null && value !== undefined && value >= at(status, most);
    put(element, (beyond ? '≥ ' : '') + format(value, as));
  }
}

// Fill a table with rows of cells (texts or elements), or with the text `none` if there are no rows.
function fillTable(id, rows, none) {
  const body = byId(id), key = JSON.stringify(rows.map(row => row.map(cell => cell.outerHTML ?? cell)));
  if (body.dataset.key === key) return;
  body.dataset.key = key;
  body.replaceChildren(...rows.map(row => {
    const line = document.createElement('tr');
    for (const cell of row) {
      const place = document.createElement('td');
      place.append(cell);
      line.append(place);
    }
    return line;
  }));
  if (!rows.length) {
    const place = create('td', none, 'none');
    place.colSpan = 9;
    body.append(document.createElement('tr'));
    body.firstChild.append(place);
  }
}

const TONES = {working: 'good', idle: 'good', 'no answer': 'bad'};

function badge(element, state) {
  put(element, state);
  element.className = `badge ${TONES[state] ?? 'warn'}`;
}

function notice(text, bad = false) {
  const element = byId('notice');
  element.hidden = !text;
  element.classList.toggle('bad', bad);
  put(element, text);
}

// If the worker is not alive or not ready, show why.
function probes(status) {
  if (!status.live.ok) notice(`not alive: ${status.live.reason}`, true);
  else if (!status.ready.ok) notice(`not ready: ${status.ready.reason}`);
  else notice('');
}

// The rows of a chart with new ones appended and old ones dropped.
function extend(kept, history, nowS) {
  const newest = kept.length ? kept[kept.length - 1][0] : 0;
  return kept.concat(history.rows.filter(row => row[0] > newest)).filter(row => row[0] > nowS - KEPT_S);
}

// The time that a chart shows: that of its rows, but at least a minute and at most all that is kept.
function spanOf(rows, nowS) {
  return Math.min(KEPT_S, Math.max(60, rows.length ? nowS - rows[0][0] : 0));
}

// Poll the status and show it; `newest()` is the time of the charts' last row.
function follow(newest, show) {
  let answeredMs = Date.now(), timer = 0;
  const ask = async () => {
    clearTimeout(timer);
    try {
      const response = await fetch(`status.json?since=${newest()}`, {signal: AbortSignal.timeout(ANSWER_MS)});
      if (!response.ok) throw new Error(response.statusText);
      const status = await response.json();
      answeredMs = Date.now();
      document.body.classList.remove('away');
      show(status);
    } catch {
      document.body.classList.add('away');
      badge(byId('state'), 'no answer');
      notice(`no answer since ${clock(answeredMs / 1000)}: the worker has ended, or cannot be reached`, true);
    }
    clearTimeout(timer);
    if (!document.hidden) timer = setTimeout(ask, ASK_EVERY_MS);
  };
  document.addEventListener('visibilitychange', () => document.hidden || ask());
  ask();
}
