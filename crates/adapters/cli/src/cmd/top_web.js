// Fetches the figures of a mount or write buffer at each interval and draws them: bars, figures, and
// a line of the last samples for each rate.
(function () {
  'use strict';
  const SAMPLES_MAX = 300;
  const part = (id) => document.getElementById(id);
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

  const SVG = 'http://www.w3.org/2000/svg';

  function chart(name) {
    const box = element('div', '', { className: 'live' });
    const frame = document.createElementNS(SVG, 'svg');
    const line = document.createElementNS(SVG, 'polyline');
    frame.setAttribute('viewBox', `0 0 ${SAMPLES_MAX - 1} 100`);
    frame.setAttribute('preserveAspectRatio', 'none');
    frame.append(line);
    const text = element('p');
    box.append(text, frame);
    part('rates').append(element('h3', name), box);
    const rate = { samples: [], line, text };
    rates.set(name, rate);
    return rate;
  }

  // The newest sample is at the right; a sample without a value is drawn as zero.
  function draw(rate) {
    const values = rate.samples.map((value) => value || 0);
    const most = Math.max(...values) || 1;
    const first = SAMPLES_MAX - values.length;
    const points = values.map((value, n) => `${first + n},${98 - (value / most) * 96}`);
    rate.line.setAttribute('points', points.join(' '));
    const last = rate.samples[rate.samples.length - 1];
    const now = last === null ? '-' : last.toFixed(1);
    const seconds = Math.round((SAMPLES_MAX * INTERVAL_MS) / 1000);
    rate.text.textContent = `now ${now}; axes: 0 to ${most.toFixed(1)} upwards, the last ${seconds} s to the right`;
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
      rate.samples.push(value);
      rate.samples.splice(0, rate.samples.length - SAMPLES_MAX);
      draw(rate);
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

  again();
})();
