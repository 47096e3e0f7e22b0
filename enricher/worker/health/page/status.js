// The page of one worker.

const CHARTS = [
  {title: 'Articles per second', as: 'rate', lines: [['articles_per_s', 'articles', 'main']]},
  {title: 'Publish to commit', as: 'seconds', lines: [['latency_p50_s', 'p50', 'main'], ['latency_p99_s', 'p99', 'second']]},
  {title: 'Oldest record', as: 'seconds', lines: [['oldest_age_s', 'age', 'main']], top: 1},
  {title: 'Lag', as: 'count', lines: [['lag', 'lag', 'main']], top: 10},
  {title: 'In flight', as: 'count', lines: [['in_flight', 'articles', 'main'], ['held_back', 'held back', 'second']], top: 10},
  {title: 'Tokens per second', as: 'rate', lines: [['tokens_per_s', 'tokens', 'main']]},
  {title: 'Batches', as: 'share', lines: [['fill', 'fill', 'main'], ['padding_share', 'padding', 'second']], top: 1},
  {title: 'Model threads', as: 'share', lines: [['busy_share', 'busy', 'main'], ['starved_share', 'starved', 'second']], top: 1},
].map(wanted => new Chart(byId('charts'), wanted));
let rows = [];

function lagCell(lag, most) {
  const cell = document.createElement('span'), bar = document.createElement('meter');
  bar.max = Math.max(1, most);
  bar.value = lag;
  bar.setAttribute('aria-hidden', 'true');
  cell.append(bar, FORMATS.count(lag));
  return cell;
}

function partitionText({topic, number, waiting_for_schemas: waiting}) {
  const waits = waiting ? `, ${FORMATS.count(waiting)} wait for a schema` : '';
  return `${topic} ${number}${waits}`;
}

function tables(status) {
  const partitions = status.partitions ?? [], most = Math.max(0, ...partitions.map(({lag}) => lag));
  fillTable('partitions', partitions.map(each => [partitionText(each), lagCell(each.lag, most)]),
    status.assigned ? 'nothing known yet' : 'none is assigned');
  const tasks = status.tasks ?? [];
  byId('tasks-panel').hidden = !tasks.length;
  fillTable('tasks', tasks.map(({name, ran, skipped, failed}) =>
    [name, ...[ran, skipped, failed].map(FORMATS.count)]), 'none');
  fillTable('labels', (status.labels ?? []).map(({task, label, count, share}) =>
    [tasks.length ? `${task}: ${label}` : label, FORMATS.count(count), FORMATS.share(share)]), 'none found yet');
  fillTable('dead', (status.dead_letters ?? []).map(({stage, reason, count}) => [reason, stage, FORMATS.count(count)]), 'none');
  fillTable('recoveries', (status.recoveries ?? []).map(({at: unixS, reason, duration_s, recovered}) =>
    [clock(unixS), recovered ? reason : `${reason}, not recovered`, FORMATS.seconds(duration_s)]), 'none');
}

function gpus(status) {
  const entries = (status.gpus ?? []).flatMap(gpu => [
    create('dt', 'GPU'),
    create('dd', `${gpu.name}, ${gpu.utilization === null ? '' : `${FORMATS.share(gpu.utilization)} in use, `}${FORMATS.bytes(gpu.used_bytes)} of ${FORMATS.bytes(gpu.total_bytes)}`),
  ]);
  byId('gpus').replaceChildren(...entries);
}

function registryText(registry) {
  if (!registry) return 'not needed';
  if (!registry.away_s) return registry.wanted_schemas ? `asked for ${FORMATS.count(registry.wanted_schemas)} schemas` : 'answers';
  return `away for ${FORMATS.seconds(registry.away_s)}, ${FORMATS.count(registry.waiting_articles)} articles wait`;
}

function about({model, worker, uptime_s}) {
  const runs = model ? `${model.name} (${model.precision}) on ${model.device}` : 'no model yet';
  return `${runs} · enricher ${worker.version} · up ${FORMATS.seconds(uptime_s)}`;
}

function show(status) {
  rows = extend(rows, status.history, status.now);
  status.rebalanced = Object.entries(status.rebalances ?? {}).map(([how, count]) => `${count} ${how}`).join(', ') || '0';
  status.registry_answers = registryText(status.registry);
  status.input_held_back = status.unstable_age_s ? `for ${FORMATS.seconds(status.unstable_age_s)} by a publisher's open transaction` : 'no';
  fill(status);
  badge(byId('state'), status.state);
  probes(status);
  put(byId('about'), about(status));
  put(byId('route'), `${status.worker.input_topic} → ${status.worker.output_topic}, group ${status.worker.group}`);
  document.title = `${status.worker.instance}: ${status.state}`;
  tables(status);
  gpus(status);
  put(byId('lately'), `The last ${FORMATS.seconds(spanOf(rows, status.now))}`);
  for (const chart of CHARTS) chart.show(status.history.columns, rows, status.now);
}

follow(() => rows.length ? rows[rows.length - 1][0] : 0, show);
