// Fetches the figures of a mount or write buffer again and again, and draws them: bars and figures
// as they are, and a chart of the last samples for each rate.
(function () {
  'use strict';
  const SAMPLES_MAX = 300;
  const COLOURS = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#8b6d00', '#3f7fbf'];
  const part = (id) => document.getElementById(id);
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const rates = new Map();

  function element(name, text, more) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    return Object.assign(made, more);
  }

  function row(cells, tag) {
    const line = element('tr');
    cells.forEach((cell, n) => line.append(element(tag, cell, { className: n ? '' : 'w' })));
    return line;
  }

  function bars(list) {
    part('bars').replaceChildren(
      ...list.map((bar) => {
        const line = element('p', '', { className: 'bar' });
        line.append(element('b', bar.name), element('meter', '', { value: bar.ratio }), bar.text);
        return line;
      }),
    );
  }

  function option(rate) {
    const soft = style('--soft');
    const axis = { axisLine: { lineStyle: { color: soft } } };
    // The margin keeps the first label of the time below that of zero.
    const label = { color: soft, hideOverlap: true };
    const grid = { splitLine: { lineStyle: { color: style('--line') } } };
    return {
      animation: false,
      color: [rate.colour],
      grid: { left: 64, right: 16, top: 8, bottom: 30 },
      tooltip: { trigger: 'axis', confine: true, valueFormatter: (v) => (v === null ? '-' : v.toFixed(1)) },
      // Whole seconds: labels of equal and small width, however short the time that is shown.
      xAxis: { type: 'time', ...axis, axisLabel: { ...label, margin: 12, formatter: '{HH}:{mm}:{ss}' }, splitNumber: 4, minInterval: 1000 },
      yAxis: { type: 'value', min: 0, splitNumber: 3, ...axis, axisLabel: label, ...grid },
      series: [{ type: 'line', name: rate.name, showSymbol: false, data: rate.samples, areaStyle: { opacity: 0.15 } }],
    };
  }

  function chart(name) {
    const box = element('div', '', { className: 'live' });
    part('rates').append(element('h3', name), box);
    const colour = COLOURS[rates.size % COLOURS.length];
    const rate = { name, colour, samples: [], drawn: echarts.init(box, null, { renderer: 'svg' }) };
    rates.set(name, rate);
    return rate;
  }

  function show(figures) {
    part('what').textContent = figures.what;
    part('warning').textContent = figures.warning || '';
    bars(figures.bars);
    part('figures').replaceChildren(...figures.figures.map((f) => row([f.name, f.text], 'td')));
    const files = figures.files.map((f) => row([f.name, f.written, f.read, f.syncs], 'td'));
    if (files.length) files.unshift(row(['file', 'written', 'read', 'syncs'], 'th'));
    part('files').replaceChildren(...files);
    for (const { name, value } of figures.rates) {
      const rate = rates.get(name) || chart(name);
      rate.samples.push([Date.now(), value]);
      rate.samples.splice(0, rate.samples.length - SAMPLES_MAX);
      rate.drawn.setOption(option(rate));
    }
  }

  async function again() {
    try {
      const answer = await fetch('live.json', { cache: 'no-store' });
      if (!answer.ok) throw new Error('status ' + answer.status);
      show(await answer.json());
    } catch (gone) {
      part('warning').textContent = 'No answer: what was shown has ended, or its server has.';
    }
    setTimeout(again, INTERVAL_MS);
  }

  window.addEventListener('resize', () => rates.forEach((rate) => rate.drawn.resize()));
  const dark = matchMedia('(prefers-color-scheme: dark)');
  dark.addEventListener('change', () => rates.forEach((rate) => rate.drawn.setOption(option(rate))));
  again();
})();
