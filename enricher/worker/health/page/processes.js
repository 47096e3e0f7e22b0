// The page of the parent of several workers: a row and a chart for each, and their totals.

const rowsOf = new Map(), chartOf = new Map();
const sum = numbers => numbers.reduce((total, number) => total + (number ?? 0), 0);

// Partitions without an owner count with the lag that was last reported, and with an age that grows.
function totals(statuses, ownerless) {
  const known = statuses.some(({lag}) => lag !== null && lag !== undefined) || ownerless.partitions > 0;
  return {
    articles_per_s: sum(statuses.map(status => status.rates?.articles_per_s)),
    oldest_age_s: Math.max(ownerless.oldest_age_s, ...statuses.map(status => status.oldest_age_s ?? 0)),
    lag: known ? sum([ownerless.lag, ...statuses.map(({lag}) => lag)]) : null,
    assigned: sum(statuses.map(status => status.assigned)),
    dead_letters: sum(statuses.map(status => status.totals?.dead_letters)),
    published: sum(statuses.map(status => status.totals?.published)),
    recoveries: sum(statuses.map(status => status.transactions?.failed)),
  };
}

function rowOf({number, state, report_age_s, status}) {
  const link = create('a', `${number}`);
  link.href = `process/${number}/`;
  link.setAttribute('aria-label', `process ${number}`);
  const mark = create('span');
  badge(mark, state === 'ready' && status ? status.state : state);
  return [
    link, mark, format(report_age_s, 'seconds'), format(status?.rates?.articles_per_s, 'rate'), format(status?.latency?.p50_s, 'seconds'),
    format(status?.latency?.p99_s, 'seconds'), format(status?.oldest_age_s, 'seconds'), format(status?.lag, 'count'),
    format(status?.in_flight?.articles, 'count'),
  ];
}

function chart({number, status}, nowS) {
  if (!status) return;
  if (!chartOf.has(number)) chartOf.set(number, new Chart(byId('charts'), {
    title: `Process ${number}`, as: 'rate', lines: [['articles_per_s', 'articles', 'main']],
  }));
  rowsOf.set(number, extend(rowsOf.get(number) ?? [], status.history, nowS));
  chartOf.get(number).show(status.history.columns, rowsOf.get(number), nowS);
}

// One request serves all charts: from the end of the chart that is furthest behind.
function newest() {
  const ends = [...rowsOf.values()].map(rows => rows.length ? rows[rows.length - 1][0] : 0);
  return ends.length ? Math.min(...ends) : 0;
}

function show(status) {
  const {processes, worker} = status, answering = processes.flatMap(({status}) => status ?? []);
  status.all = totals(answering, status.without_owner);
  fill(status);
  badge(byId('state'), status.ready.ok ? 'ready' : status.ready.reason === 'draining' ? 'draining' : 'starting');
  probes(status);
  put(byId('about'), `${processes.length} processes · enricher ${worker.version} · up ${FORMATS.seconds(status.uptime_s)}`);
  put(byId('route'), `${worker.input_topic} → ${worker.output_topic}, group ${worker.group}`);
  document.title = `${worker.instance}: ${processes.length} processes`;
  fillTable('processes', processes.map(rowOf), 'none');
  for (const each of processes) chart(each, status.now);
}

follow(newest, show);
