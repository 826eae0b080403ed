// A chart of bars to the right, as SVG: a line each, groups with a heading, one axis.

const SVG = "http://www.w3.org/2000/svg";
const LINE = 22;
const HEAD = 30;
const AXIS = 40;
/** Width of a letter of the labels, at most. */
const LETTER = 7.4;

function make(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** Steps of an axis that ends at `most` or above: 1, 2 or 5 of a power of ten, at most `count`. */
function steps(most, count) {
  const rough = most / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough * 0.999);
  return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, n) => n * step);
}

/** Digits as in the tables: three that count. */
export function figure(value) {
  return value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

/**
 * Draws a chart into `figure`, as wide as that is. `groups` are `{ name, bars: [{ label, kind,
 * value }] }`; the class of a bar is `bar-KIND`, so that a kind has one colour on the whole page.
 */
export function draw(into, { title, axis, groups }) {
  const width = Math.max(260, into.clientWidth);
  const labels = groups.flatMap(({ bars }) => bars.map(({ label }) => label.length));
  const left = Math.min(width * 0.45, Math.max(...labels) * LETTER + 12);
  const right = 62;
  const most = Math.max(...groups.flatMap(({ bars }) => bars.map(({ value }) => value)), 1e-9);
  const ticks = steps(most, Math.max(2, Math.floor((width - left - right) / 90)));
  const x = (value) => left + (value / ticks.at(-1)) * (width - left - right);
  const drawn = [];
  let y = 4;
  for (const { name, bars } of groups) {
    if (name) {
      drawn.push(make("text", { x: 0, y: y + 18, class: "group" }, name));
      y += HEAD;
    }
    for (const { label, kind, value } of bars) {
      drawn.push(make("text", { x: left - 8, y: y + 15, "text-anchor": "end" }, label));
      drawn.push(make("rect", { x: left, y: y + 3, width: value > 0 ? Math.max(1, x(value) - left) : 0, height: LINE - 6, class: `bar-${kind}` }));
      drawn.push(make("text", { x: x(value) + 5, y: y + 15, class: "value" }, figure(value)));
      y += LINE;
    }
  }
  const lines = ticks.flatMap((tick) => [
    make("line", { x1: x(tick), x2: x(tick), y1: 0, y2: y + 4, class: "tick" }),
    make("text", { x: x(tick), y: y + 20, "text-anchor": "middle" }, tick.toLocaleString("en")),
  ]);
  const name = make("text", { x: left, y: y + 37, class: "axis" }, axis);
  const chart = make("svg", { width, height: y + AXIS + 2, role: "img", "aria-label": `${title}. The table has all figures.` });
  chart.append(...lines, ...drawn, name);
  const caption = document.createElement("figcaption");
  caption.textContent = title;
  into.replaceChildren(caption, chart);
}
