// The demo and the traces: loaded when one of their tabs opens first.

import { draw } from "./bars.js";

const $ = (id) => document.getElementById(id);

// The service worker keeps these files from now on, too.
navigator.serviceWorker?.ready.then(({ active }) => active?.postMessage("lab"));

/** Work of a panel: a worker, its progress, and what it says. Elements have the panel's name first. */
class Work {
  #name;
  #worker;
  #end;
  #late;

  constructor(name) {
    this.#name = name;
    this.#part("stop").addEventListener("click", () => this.#ended({ stopped: true }));
  }

  #part(name) {
    return $(`${this.#name}-${name}`);
  }

  /**
   * Runs a call; `onPart` gets finished parts of the result. Resolves to the result; undefined
   * after a failure, which is shown, or if it was stopped.
   */
  async run(call, given, blob, onPart) {
    if (this.#end) return undefined;
    this.#say("", "");
    this.#worker ??= this.#newWorker();
    const done = new Promise((resolve) => {
      this.#end = resolve;
    });
    this.#worker.onmessage = ({ data }) => {
      if (data.progress) this.#show(data.progress);
      else if (data.part) onPart?.(data.part);
      else this.#ended(data);
    };
    this.#part("panel").ariaBusy = "true";
    // Short work needs no bar, which would flicker.
    this.#late = setTimeout(() => this.#busy(true), 250);
    this.#worker.postMessage({ call, given, blob });
    const { result, error, died, stopped } = await done;
    if (stopped) this.#say("Stopped. What was finished is shown.", "");
    else if (died !== undefined) {
      this.#say("", `The run stopped its worker, which was ended. Run again, or run something else: ${died}.`);
    } else if (error) this.#say("", `${error[0].toUpperCase()}${error.slice(1)}.`);
    return result;
  }

  #newWorker() {
    const made = new Worker("lab-worker.js", { type: "module" });
    made.addEventListener("error", (event) => {
      event.preventDefault();
      this.#ended({ died: event.message || "it ended" });
    });
    return made;
  }

  #ended(how) {
    if (how.stopped || how.died !== undefined) {
      this.#worker?.terminate();
      this.#worker = undefined;
    }
    clearTimeout(this.#late);
    this.#busy(false);
    this.#part("panel").ariaBusy = "false";
    const end = this.#end;
    this.#end = undefined;
    end?.(how);
  }

  #busy(is) {
    this.#part("busy").hidden = !is;
    this.#part("run").disabled = is;
  }

  #show({ what, done, total }) {
    const bar = this.#part("progress");
    this.#part("doing").textContent = `${what[0].toUpperCase()}${what.slice(1)}…`;
    if (total) {
      bar.max = total;
      bar.value = done;
    } else bar.removeAttribute("value");
  }

  #say(said, failed) {
    this.#part("said").textContent = said;
    this.#part("alert").textContent = failed;
  }
}

function element(name, content, attributes = {}) {
  const made = document.createElement(name);
  made.append(...[content].flat());
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/** A table; the first `words` columns are text, the others figures. */
function table(caption, head, rows, words) {
  const kind = (at) => (at < words ? {} : { class: "number" });
  const cell = (text, at) =>
    at === 0 ? element("th", text, { scope: "row" }) : element("td", text, kind(at));
  const parts = [element("caption", caption)];
  if (head) parts.push(element("thead", element("tr", head.map((text, at) => element("th", text, { scope: "col", ...kind(at) })))));
  parts.push(element("tbody", rows.map((row) => element("tr", row.map(cell)))));
  const made = element("table", parts, { class: head ? "figures" : "facts" });
  // It scrolls on its own where it is wider than the window, also with the keyboard.
  return element("div", made, { class: "scrolls", tabindex: 0, role: "region", "aria-label": caption });
}

function save(text, name) {
  const link = element("a", "", { href: URL.createObjectURL(new Blob([text])), download: name });
  link.click();
  // The browser has begun to read it by then.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Charts on the page, which are drawn anew when its width changes. */
const charts = new Map();
function chart(into, what) {
  charts.set(into, what);
  draw(into, what);
}
addEventListener("resize", () => {
  for (const [into, what] of charts) {
    if (into.isConnected && into.clientWidth > 0) draw(into, what);
    else if (!into.isConnected) charts.delete(into);
  }
});

const demo = new Work("demo");
const trace = new Work("trace");

/** Fills the lists of devices and formats, once. */
async function fill() {
  const found = await demo.run("choices");
  if (!found) return;
  const devices = (list, first) => {
    const all = found.devices.map(({ name }) => element("option", name, { value: name }));
    list.replaceChildren(...first, ...all);
    const about = $(`${list.id}-about`);
    const tell = () => {
      about.textContent = found.devices.find(({ name }) => name === list.value)?.summary ?? "Two devices, one after the other.";
    };
    list.addEventListener("change", tell);
    tell();
  };
  devices($("demo-device"), [element("option", "nexus7-emmc and ufs-4", { value: "nexus7-emmc ufs-4" })]);
  devices($("trace-device"), []);
  $("trace-device").value = "nexus7-emmc";
  $("trace-device").dispatchEvent(new Event("change"));
  const formats = found.formats.map(({ name, about }) => element("option", `${name}: ${about}`, { value: name }));
  $("trace-format").append(...formats);
  $("demo-run").disabled = $("trace-open").disabled = false;
  showCommand();
}

// The demo.

const chosen = (name) => [...document.querySelectorAll(`[name=demo-${name}]:checked`)].map(({ value }) => value);

/** What is asked for: the request, and the command that gives the same figures. */
function request() {
  const devices = $("demo-device").value.split(" ");
  const [tests, sync, log, modes] = ["test", "sync", "log", "mode"].map(chosen);
  const operations = $("demo-operations").valueAsNumber || undefined;
  const bench = {
    workloads: tests.map((test) => `sqlite/${test}`), sync, log, journal_mode: modes, operations,
  };
  const words = [
    "syncline-lab bench sqlite", ...(tests.length < 3 ? tests : []), ...devices.map((name) => `--device ${name}`),
    `--sync ${sync}`, `--log ${log}`, `--journal-mode ${modes}`, ...(operations ? [`--operations ${operations}`] : []),
  ];
  const missing = { test: tests, "sync mode": sync, "journal format": log, "journal mode": modes };
  const none = Object.keys(missing).find((name) => missing[name].length === 0);
  return { devices, bench, words, none };
}

function showCommand() {
  const { words, none } = request();
  const parts = none ? [`Choose a ${none}.`] : words;
  $("demo-command").replaceChildren(...parts.flatMap((part) => [element("span", part), " "]).slice(0, -1));
  $("demo-run").disabled = Boolean(none) || !$("demo-operations").checkValidity();
}

/** Meaning of a bar's colour: the sync mode, and packed records. */
const kind = ({ sync, log }) => (log === "packed" ? "packed" : sync);

let shown;

function showDemo(found) {
  shown = found;
  $("demo-result").hidden = false;
  const [head, ...rows] = found.cells;
  $("demo-table").replaceChildren(table("SQLite on simulated devices", head, rows, 2));
  const devices = [...new Set(found.bars.map(({ device }) => device))];
  const figures = devices.map(() => element("figure", ""));
  $("demo-charts").replaceChildren(...figures);
  devices.forEach((device, nr) => {
    const of = found.bars.filter((bar) => bar.device === device);
    const workloads = [...new Set(of.map(({ workload }) => workload))];
    const bars = (name) =>
      of.filter(({ workload }) => workload === name)
        .map((bar) => ({ label: bar.label, kind: kind(bar), value: bar.operations_per_s }));
    chart(figures[nr], {
      title: `SQLite transactions a second on ${device}: more is better`,
      axis: "transactions a second (1/s)",
      groups: workloads.map((name) => ({ name, bars: bars(name) })),
    });
  });
}

$("demo-form").addEventListener("input", showCommand);
$("demo-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const { devices, bench } = request();
  $("demo-result").hidden = true;
  const found = await demo.run("bench", { devices, bench }, undefined, showDemo);
  if (found) showDemo(found);
});
$("demo-text").addEventListener("click", () => save(shown.text, "syncline-bench.txt"));
$("demo-json").addEventListener("click", () => save(shown.document, "syncline-bench.json"));

// Traces.

let dropped;
let seen;

/** Reads a trace, and shows what it does to a device. */
export async function openTrace(file) {
  dropped = file;
  $("trace-form").hidden = false;
  $("trace-name").textContent = file.name;
  $("trace-result").hidden = true;
  const number = (id) => $(id).valueAsNumber || undefined;
  const lifetime = {
    trace: file.name, device: $("trace-device").value, passes: number("trace-passes") ?? 1,
    precondition: number("trace-precondition") ?? 0, per_day: number("trace-per-day"),
  };
  const format = $("trace-format").value || undefined;
  const found = await trace.run("trace", { size: file.size, format, lifetime }, file);
  if (found) showTrace(found);
}

function showTrace(found) {
  seen = found;
  const { worn } = found;
  $("trace-result").hidden = false;
  $("trace-remarks").replaceChildren(...found.remarks.map((text) => element("p", text)));
  $("trace-stat").textContent = found.stat;
  $("trace-wear").replaceChildren();
  if (worn.refused) {
    $("trace-sentences").replaceChildren(element("p", `No lifetime: ${worn.refused}.`));
    return;
  }
  const sentences = worn.sentences.split("\n").filter(Boolean);
  $("trace-sentences").replaceChildren(...sentences.map((text) => element("p", text)));
  const head = (what) => [what, "written MB", "programmed MB", "of all"];
  const figure = element("figure", "");
  const parts = [figure, table("Wear of the device", undefined, worn.rows, 2)];
  if (worn.processes.length) parts.push(table("By process", head("process"), worn.processes, 1));
  if (worn.files.length) parts.push(table("By file", head("file"), worn.files, 1));
  $("trace-wear").replaceChildren(...parts);
  chart(figure, {
    title: "Who wears the flash: MB programmed, by kind of request",
    axis: "programmed (MB)",
    groups: [{ bars: worn.origins.map(([label, bytes]) => ({ label, kind: "one", value: bytes / 1e6 })) }],
  });
}

$("trace-open").addEventListener("click", () => $("trace-file").click());
$("trace-file").addEventListener("change", () => {
  const [file] = $("trace-file").files;
  $("trace-file").value = "";
  if (file) openTrace(file);
});
$("trace-form").addEventListener("submit", (event) => {
  event.preventDefault();
  openTrace(dropped);
});
$("trace-text").addEventListener("click", () => save(`${seen.worn.text ?? ""}\n${seen.stat}`, "syncline-trace.txt"));
$("trace-json").addEventListener("click", () =>
  save(JSON.stringify({ lifetime: seen.worn.document, stat: seen.statDocument }, undefined, 2), "syncline-trace.json"),
);

await fill();
