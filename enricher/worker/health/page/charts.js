// Small charts of the last 15 minutes, or of less if there is less, drawn as SVG at their actual size.

const SVG = 'http://www.w3.org/2000/svg';
const HEIGHT = 118, LEFT = 46, RIGHT = 6, TOP = 10, BOTTOM = 20;
const GAP_S = 7;  // a longer time between two rows is a gap in the samples

function createSvg(name, attributes, text = '') {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
}

// The next round number whose half is round too, so that the scale does not change with every value.
function roundUp(value, as) {
  if (value <= 0) return 1;
  if (as === 'seconds' && value > 60) return 60 * roundUp(value / 60);
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 4, 6, 10].find(factor => factor * power >= value * 0.9999);
}

class Chart {
  // `lines`: [column, name, class of the colour]; `top`: least maximum of the scale.
  constructor(host, {title, lines, as, top = 0}) {
    Object.assign(this, {title, lines, as, top, rows: [], columns: [], nowS: 0, spanS: KEPT_S});
    this.figure = document.createElement('figure');
    const caption = document.createElement('figcaption');
    this.key = create('span', NONE, 'key');
    caption.append(create('h3', title), this.key);
    this.svg = createSvg('svg', {role: 'img'});
    this.figure.append(caption, this.svg);
    host.append(this.figure);
    this.svg.addEventListener('pointermove', event => this.point(event));
    this.svg.addEventListener('pointerleave', () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.figure);
  }

  show(columns, rows, nowS) {
    Object.assign(this, {columns, rows, nowS, spanS: spanOf(rows, nowS)});
    this.draw();
  }

  series() {
    return this.lines.map(([column]) => {
      const index = this.columns.indexOf(column);
      return this.rows.map(row => [row[0], row[index] ?? null]);
    });
  }

  draw(pointed = null) {
    const width = Math.max(200, this.figure.clientWidth), series = this.series();
    const highest = Math.max(0, ...series.flat().map(([, value]) => value ?? 0));
    const top = roundUp(Math.max(this.top, highest), this.as);
    const x = unixS => LEFT + (width - LEFT - RIGHT) * (1 - (this.nowS - unixS) / this.spanS);
    const y = value => TOP + (HEIGHT - TOP - BOTTOM) * (1 - Math.min(value, top) / top);
    this.svg.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`);
    this.svg.replaceChildren(...this.frame(width, top, y), ...series.flatMap((points, i) => this.line(points, i, x, y)));
    if (pointed) this.svg.append(createSvg('line', {class: 'at', x1: x(pointed[0]), x2: x(pointed[0]), y1: TOP, y2: HEIGHT - BOTTOM}));
    this.say(series, highest, pointed);
  }

  frame(width, top, y) {
    const levels = [0, top / 2, top].flatMap(value => [
      createSvg('line', {class: value ? 'grid' : 'axis', x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value)}),
      createSvg('text', {x: LEFT - 7, y: y(value) + 4, 'text-anchor': 'end'}, FORMATS[this.as](value)),
    ]);
    const times = [3, 2, 1, 0].map(thirds => createSvg('text', {
      x: LEFT + (width - LEFT - RIGHT) * (1 - thirds / 3), y: HEIGHT - 4,
      'text-anchor': thirds === 3 ? 'start' : thirds ? 'middle' : 'end',
    }, thirds ? `−${FORMATS.seconds(this.spanS * thirds / 3)}` : 'now'));
    return [...levels, ...times];
  }

  line(points, index, x, y) {
    const runs = [[]];
    let lastS = null;
    for (const [unixS, value] of points) {
      if (value === null || (lastS !== null && unixS - lastS > GAP_S)) runs.push([]);
      if (value !== null) runs[runs.length - 1].push([x(unixS).toFixed(1), y(value).toFixed(1)]);
      lastS = unixS;
    }
    return runs.filter(run => run.length).flatMap(run => {
      const path = run.map(point => point.join(' ')).join('L');
      const line = createSvg('path', {class: `line ${this.lines[index][2]}`, d: `M${path}${run.length > 1 ? '' : 'h.1'}`});
      const area = createSvg('path', {class: 'area', d: `M${run[0][0]} ${y(0)}L${path}L${run[run.length - 1][0]} ${y(0)}Z`});
      return index || run.length < 2 ? [line] : [area, line];
    });
  }

  // Write the figures beside the title: those at the pointer, or else the last ones.
  say(series, highest, pointed) {
    const figures = this.lines.map(([column, name, colour], i) => {
      const value = pointed ? pointed[this.columns.indexOf(column)] : series[i].length ? series[i][series[i].length - 1][1] : null;
      return {name, colour, text: format(value, this.as)};
    });
    this.key.replaceChildren(...figures.map(({name, colour, text}) => {
      const entry = create('span');
      entry.append(create('i', '', colour), `${name} `, create('b', text));
      return entry;
    }));
    if (pointed) this.key.append(create('span', `at ${clock(pointed[0])}`));
    const now = figures.map(({name, text}) => figures.length > 1 ? `${name} ${text}` : text).join(', ');
    this.svg.setAttribute('aria-label', `${this.title}, last ${FORMATS.seconds(this.spanS)}: now ${now}; highest ${format(highest, this.as)}`);
  }

  point(event) {
    const box = this.svg.getBoundingClientRect(), inside = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
    const unixS = this.nowS - this.spanS * (1 - inside);
    const near = (a, b) => Math.abs(a[0] - unixS) <= Math.abs(b[0] - unixS) ? a : b;
    if (this.rows.length) this.draw(this.rows.reduce(near));
  }
}
