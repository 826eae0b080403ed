// Looks at the charts of a report and writes what it finds into the page.
setTimeout(() => {
  const charts = JSON.parse((document.getElementById('charts') || { textContent: '[]' }).textContent);
  Object.assign(seen, { charts: charts.length, overlaps: [], outside: [], unnamed: [], empty: [], tips: [], cut: [] });
  const box = (element) => element.getBoundingClientRect();
  const shown = (element) => element.textContent.trim() && box(element).width > 0;
  const meet = (a, b) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
  charts.forEach((chart, n) => {
    const figure = document.getElementById('chart-' + n);
    const svg = figure.querySelector('svg');
    const keys = [...figure.querySelectorAll('.keys button')];
    const texts = [...svg.querySelectorAll('text')].filter(shown).concat(keys);
    seen.cut.push(...texts.filter((one) => one.textContent.endsWith('...')).map((one) => [chart.title, one.textContent]));
    texts.forEach((a, at) => {
      for (const b of texts.slice(at + 1)) {
        if (meet(box(a), box(b))) {
          seen.overlaps.push([chart.title, a.textContent, b.textContent]);
        }
      }
      const whole = box(keys.includes(a) ? figure : svg);
      const part = box(a);
      if (part.left < whole.left - 2 || part.right > whole.right + 2) {
        seen.outside.push([chart.title, a.textContent]);
      }
    });
    for (const series of chart.series) {
      if (!keys.some((key) => key.textContent === series.name)) {
        seen.unnamed.push([chart.title, series.name]);
      }
    }
    const paths = () => svg.querySelectorAll('path').length;
    if (paths() < 3 || texts.length < 3) {
      seen.empty.push(chart.title);
    }
  });
  for (const box of document.querySelectorAll('.scroll')) {
    if (box.scrollWidth > box.clientWidth + 1) {
      seen.cut.push(['table', box.innerText.split('\n', 1)[0]]);
    }
  }
  // The charts of a page that renews itself, each below a heading of its own.
  const live = [...document.querySelectorAll('.live svg')];
  seen.live = live.length;
  for (const svg of live) {
    const texts = [...svg.querySelectorAll('text')].filter(shown);
    texts.forEach((a, at) => {
      for (const b of texts.slice(at + 1)) {
        if (meet(box(a), box(b))) {
          seen.overlaps.push(['live', a.textContent, b.textContent]);
        }
      }
    });
  }
  seen.dead = [...document.querySelectorAll('a[href^="#"]')]
    .map((link) => decodeURIComponent(link.hash.slice(1)))
    .filter((name) => !document.getElementById(name));
  seen.width = innerWidth;
  seen.height = document.documentElement.scrollHeight;
  seen.wide = document.documentElement.scrollWidth > innerWidth + 1;
  seen.back = getComputedStyle(document.body).backgroundColor;
  seen.axis = (document.querySelector('figure svg text') || { getAttribute: () => '' }).getAttribute('fill');
  seen.footer = document.querySelector('footer').innerText;
  charts.forEach((chart, n) => {
    const instance = document.getElementById('chart-' + n).chart;
    const of = chart.kind === 'points' ? chart.panels.flatMap((p) => p.points) : chart.series.map((s) => s.values);
    const series = of.findIndex((values) => values.length && values[0] !== null);
    if (series >= 0) {
      instance.dispatchAction({ type: 'showTip', seriesIndex: series, dataIndex: 0 });
    }
  });
  setTimeout(() => {
    charts.forEach((_, n) => {
      const plot = document.querySelector('#chart-' + n + ' .plot');
      const tip = [...plot.children].find((one) => !one.querySelector('svg'));
      seen.tips.push(tip ? tip.innerText : '');
    });
    // The first key hides its series, and shows it again. Without its animation a drawing is whole when it is flushed,
    // however few frames a loaded machine draws.
    const key = document.querySelector('.keys button');
    const first = key && document.getElementById('chart-0').chart;
    const drawn = () => {
      first.getZr().flush();
      return document.querySelectorAll('#chart-0 svg path').length;
    };
    let before = 0;
    if (key) {
      first.setOption({ animation: false });
      before = drawn();
      key.click();
    }
    setTimeout(() => {
      seen.hidden = key ? before - drawn() : 0;
      const pre = document.createElement('pre');
      pre.id = 'seen';
      pre.textContent = JSON.stringify(seen);
      parent.document.body.append(pre);
    }, 200);
  }, 300);
}, 500);
