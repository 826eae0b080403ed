// Draws the charts of this page from the descriptions in it, and draws them again when the colour
// scheme changes. The keys are buttons that hide and show a series.
(function () {
  'use strict';
  const charts = JSON.parse(document.getElementById('charts').textContent);
  const drawn = [];
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // Three digits that count; a number of things has no fraction.
  const figure = (v) => {
    if (Number.isInteger(v)) return String(v);
    return Math.abs(v) >= 100 ? v.toFixed(0) : String(Number(v.toPrecision(3)));
  };
  const exact = (v) => v.toLocaleString('en', { maximumSignificantDigits: 12 });
  const bytes = (v) => {
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    let unit = 0;
    while (v >= 1024 && unit < 4) {
      v /= 1024;
      unit += 1;
    }
    return (Number.isInteger(v) ? v : +v.toFixed(2)) + ' ' + units[unit];
  };
  const text = (s) => s.replace(/[&<>"']/g, (c) => '&#' + c.charCodeAt(0) + ';');

  function common(chart) {
    const soft = style('--soft');
    return {
      animation: false,
      color: chart.series.map((s) => s.colour),
      textStyle: { color: style('--text'), fontFamily: 'system-ui, sans-serif' },
      aria: { enabled: true },
      // The keys are beside the chart; the component keeps which series are shown.
      legend: { show: false },
      toolbox: {
        right: 4,
        top: 0,
        itemSize: 13,
        iconStyle: { borderColor: soft },
        feature: { dataZoom: { title: { zoom: 'zoom', back: 'back' } }, restore: { title: 'all' } },
      },
      tooltip: {
        trigger: 'item',
        confine: true,
        backgroundColor: style('--raised'),
        borderColor: style('--line'),
        textStyle: { color: style('--text') },
      },
    };
  }

  function axis(more) {
    const line = { lineStyle: { color: style('--line') } };
    return Object.assign(
      {
        axisLine: { show: true, lineStyle: { color: style('--soft') } },
        axisTick: { show: true },
        axisLabel: { color: style('--soft'), hideOverlap: true },
        nameTextStyle: { color: style('--soft') },
        splitLine: line,
      },
      more,
    );
  }

  const pattern = (s) =>
    s.pattern
      ? { color: '#fff', symbol: 'rect', dashArrayX: [1, 0], dashArrayY: [2, 4], rotation: s.pattern === 1 ? 0.78 : -0.78 }
      : null;

  function bars(chart, box) {
    const rows = chart.groups.length * Math.max(1, chart.series.length);
    const flat = chart.horizontal;
    const narrow = box.clientWidth < 600;
    // A name that is too long for its line goes on in the next.
    const width = narrow ? 150 : Math.min(460, 0.4 * box.clientWidth);
    const lines = Math.max(1, ...chart.groups.map((name) => Math.ceil((name.length * 8) / width)));
    // Labels of the bars of one group are one above the other.
    const least = flat && chart.series.length > 1 && !chart.exclusive ? 28 : 24;
    const row = Math.max(least, flat ? 13 * lines + 5 : 0);
    box.style.height = (flat ? 70 + row * (chart.exclusive ? chart.groups.length : rows) : 320) + 'px';
    const many = chart.groups.length > 12;
    const label = flat && { width, overflow: 'break', lineHeight: 13, interval: 0 };
    const groups = axis({ type: 'category', data: chart.groups, inverse: flat });
    groups.splitLine = { show: false };
    if (chart.group) Object.assign(groups, { name: chart.group, nameLocation: 'middle', nameGap: 26 });
    Object.assign(groups.axisLabel, label || { interval: narrow && !many ? 0 : 'auto', rotate: narrow && !many ? 45 : 0 });
    const values = axis({ type: chart.log ? 'log' : 'value', name: chart.unit, nameLocation: 'end' });
    if (chart.log) values.logBase = 10;
    // Zero is left out only where all values are far from it.
    const all = chart.series.flatMap((s) => s.values.filter((v) => v !== null));
    values.scale = chart.lines && Math.min(...all) > Math.max(...all) / 2;
    values.splitNumber = narrow ? 3 : 6;
    if (flat) Object.assign(values, { nameLocation: 'middle', nameGap: 26 });
    const option = common(chart);
    option.tooltip.formatter = (p) =>
      text(p.name) + '<br>' + text(p.seriesName) + ': <b>' + exact(p.value) + '</b> ' + text(chart.unit);
    return Object.assign(option, {
      grid: { left: 12, right: flat ? 72 : 16, top: 36, bottom: flat || chart.group ? 40 : 28 },
      xAxis: flat ? values : groups,
      yAxis: flat ? groups : values,
      dataZoom: [
        { type: 'inside', [flat ? 'yAxisIndex' : 'xAxisIndex']: 0, zoomOnMouseWheel: 'ctrl' },
      ],
      series: chart.series.map((s) => ({
        type: chart.lines ? 'line' : 'bar',
        name: s.name,
        data: s.values,
        barMaxWidth: 26,
        stack: chart.exclusive && !chart.lines ? 'one' : undefined,
        symbol: s.pattern ? 'emptyCircle' : 'circle',
        symbolSize: 7,
        lineStyle: { type: ['solid', 'dashed', 'dotted'][s.pattern] },
        itemStyle: chart.lines ? {} : { decal: pattern(s) },
        label: {
          show: flat,
          position: 'right',
          color: style('--text'),
          formatter: (p) => figure(p.value),
        },
      })),
    });
  }

  // One panel a band of addresses, the highest on top, over one axis.
  function points(chart, box) {
    const panels = chart.panels.length;
    const small = box.clientWidth < 500;
    const counts = chart.panels.map((panel) => panel.points.reduce((sum, of) => sum + of.length, 0));
    const most = Math.max(...counts);
    // A band that has few points is low.
    const low = counts.map((count) => count < most / 20);
    const height = (n) => (low[n] ? 36 : small ? 90 : panels > 2 ? 150 : 230);
    const top = (n) => chart.panels.slice(0, n).reduce((sum, _, of) => sum + height(of) + 34, 36);
    box.style.height = top(panels) + (small ? 24 : 64) + 'px';
    const option = common(chart);
    const narrow = box.clientWidth < 600;
    option.tooltip.formatter = (p) =>
      text(p.seriesName) + '<br>' + text(chart.x_name) + ': <b>' + exact(p.value[0]) + '</b> ' +
      text(chart.x_unit) + '<br>at byte <b>' + exact(p.value[1]) + '</b> (' + bytes(p.value[1]) +
      ')<br>' + exact(p.value[2]) + ' bytes';
    return Object.assign(option, {
      grid: chart.panels.map((_, n) => ({ left: 84, right: 24, top: top(n), height: height(n) })),
      xAxis: chart.panels.map((_, n) =>
        axis({
          type: 'value',
          gridIndex: n,
          min: 0,
          max: chart.x_end,
          splitNumber: narrow ? 3 : 8,
          axisLabel: {
            color: style('--soft'),
            show: n === panels - 1,
            hideOverlap: true,
            showMaxLabel: false,
          },
          name: n === panels - 1 ? chart.x_name + (chart.x_unit && ', ' + chart.x_unit) : '',
          nameLocation: 'middle',
          nameGap: 26,
        }),
      ),
      yAxis: chart.panels.map((panel, n) =>
        axis({
          type: 'value',
          gridIndex: n,
          min: panel.from,
          max: panel.to,
          interval: low[n] ? panel.to - panel.from : panel.step,
          axisLabel: {
            color: style('--soft'),
            hideOverlap: true,
            formatter: (v) => (v / 1048576).toFixed(panel.digits),
          },
          name: n === 0 ? chart.y_name + ', MiB' : '',
          nameLocation: 'end',
        }),
      ),
      dataZoom: [
        { type: 'inside', xAxisIndex: chart.panels.map((_, n) => n), zoomOnMouseWheel: 'ctrl' },
        ...(small ? [] : [{
          type: 'slider',
          xAxisIndex: chart.panels.map((_, n) => n),
          bottom: 8,
          height: 18,
          showDetail: false,
          borderColor: style('--line'),
          textStyle: { color: style('--soft') },
        }]),
      ],
      series: chart.panels.flatMap((panel, n) =>
        chart.series.map((s, at) => ({
          type: 'scatter',
          name: s.name,
          xAxisIndex: n,
          yAxisIndex: n,
          symbol: s.symbol,
          symbolSize: 5,
          large: true,
          largeThreshold: 800,
          itemStyle: { color: s.colour, opacity: 1 },
          data: panel.points[at],
        })),
      ),
    });
  }

  function keys(chart, figure, instance, shown) {
    let box = figure.querySelector('.keys');
    if (!box) {
      box = document.createElement('div');
      box.className = 'keys';
      figure.insertBefore(box, figure.firstChild);
      for (const s of chart.series) {
        const button = document.createElement('button');
        const swatch = document.createElement('i');
        swatch.style.background = s.pattern
          ? 'repeating-linear-gradient(' + (s.pattern === 1 ? 45 : -45) + 'deg,' + s.colour + ' 0 3px,#fff 3px 4px)'
          : s.colour;
        button.append(swatch, s.name);
        button.setAttribute('aria-pressed', 'true');
        button.onclick = () => {
          shown[s.name] = !shown[s.name];
          button.setAttribute('aria-pressed', String(shown[s.name]));
          figure.chart.dispatchAction({ type: 'legendToggleSelect', name: s.name });
        };
        box.append(button);
      }
    }
    figure.chart = instance;
  }

  function draw() {
    for (const old of drawn.splice(0)) old.dispose();
    charts.forEach((chart, n) => {
      const figure = document.getElementById('chart-' + n);
      const box = figure.querySelector('.plot');
      const shown = (figure.shown = figure.shown || Object.fromEntries(chart.series.map((s) => [s.name, true])));
      const option = chart.kind === 'points' ? points(chart, box) : bars(chart, box);
      option.legend.selected = shown;
      const instance = echarts.init(box, null, { renderer: 'svg' });
      instance.setOption(option);
      keys(chart, figure, instance, shown);
      drawn.push(instance);
    });
  }

  draw();
  let width = window.innerWidth;
  window.addEventListener('resize', () => {
    if (window.innerWidth !== width) {
      width = window.innerWidth;
      draw();
    }
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
})();
