// The demo and the traces of the page in headless Chromium, against the program `syncline-lab`.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import crypto from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { serve, start } from "./chromium.js";

const root = fileURLToPath(new URL("../../../../", import.meta.url));
const web = path.join(root, "target/web");
const LAB = ["lab.js", "bars.js", "lab-worker.js", "lab.wasm"];
const skip = fs.existsSync(path.join(web, "lab.wasm")) ? false : "the page was built without clang";
/** Bytes that the first load of the page may have. */
const FIRST_LOAD = 3_000_000;

let dir, server, page;
const asked = [];
const at = (name) => path.join(dir, name);
const lab = (...args) =>
  execFileSync(process.env.SYNCLINE_LAB, args, { cwd: dir, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
const text = (selector) => page.value(`document.querySelector(${JSON.stringify(selector)}).textContent`);
const isShown = (selector) => page.value(`document.querySelector(${JSON.stringify(selector)}).checkVisibility()`);
const set = (selector, value) =>
  page.value(
    `{ const one = document.querySelector(${JSON.stringify(selector)});
       one.value = ${JSON.stringify(value)};
       one.dispatchEvent(new Event("input", { bubbles: true }));
       one.dispatchEvent(new Event("change", { bubbles: true })); }`,
  );
const idle = (name) => page.until(`document.querySelector("#${name}-panel").ariaBusy === "false"`);

/** What a panel saves as a file. */
async function saved(button, name) {
  await page.click(button);
  const file = path.join(dir, "downloads", name);
  for (let n = 0; !fs.statSync(file, { throwIfNoEntry: false })?.size; n += 1) {
    assert.ok(n < 200, `${name} was not saved`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const bytes = fs.readFileSync(file, "utf8");
  fs.rmSync(file);
  return bytes;
}

async function runDemo() {
  await page.value("document.querySelector('#demo-result').hidden = true");
  await page.click("#demo-run");
  await idle("demo");
}

async function openTrace(name) {
  await page.files("#trace-file", at(name));
  await page.until(`document.querySelector("#trace-name").textContent === ${JSON.stringify(name)}`);
  await idle("trace");
}

before(async () => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), "ext4-lab-"));
  fs.mkdirSync(at("downloads"));
  for (const name of ["samples/dpkg.blocks.trace", "samples/dpkg.calls.trace", "lab/tests/trace/samples/blkparse.txt"]) {
    fs.copyFileSync(path.join(root, name), at(path.basename(name)));
  }
  fs.writeFileSync(at("noise"), crypto.createHash("sha512").update("noise").digest());
  fs.writeFileSync(at("cut.trace"), fs.readFileSync(at("dpkg.blocks.trace")).subarray(0, 5000));
  fs.writeFileSync(at("empty"), "");
  server = await serve(web, (name) => asked.push(name));
  page = start();
  await page.open(server.url, at("downloads"));
});

after(async () => {
  await page?.close();
  server?.close();
  fs.rmSync(dir, { recursive: true });
});

test("the page loads nothing of the laboratory before a tab is opened", { skip }, async () => {
  await page.value("navigator.serviceWorker.ready.then(() => true)");
  assert.deepEqual(asked.filter((name) => LAB.includes(name.slice(1))), []);
  const first = fs.readdirSync(web).filter((name) => !LAB.includes(name));
  const bytes = first.reduce((sum, name) => sum + fs.statSync(path.join(web, name)).size, 0);
  assert.ok(bytes <= FIRST_LOAD, `the first load has ${bytes} bytes`);
  await page.value("document.querySelector('#tab-image').focus()");
  await page.key("ArrowRight", 39);
  assert.equal(await page.value("document.activeElement.id"), "tab-demo");
  await page.until("!document.querySelector('#demo-run').disabled");
  assert.ok(asked.includes("/lab.wasm"));
});

test("the demo has the figures of the program, to the last digit", { skip }, async () => {
  await set("#demo-operations", "10");
  const [program, ...args] = (await text("#demo-command")).split(" ");
  assert.equal(program, "syncline-lab");
  assert.deepEqual(args.filter((arg, nr) => args[nr - 1] === "--device"), ["nexus7-emmc", "ufs-4"]);
  await runDemo();
  const table = lab(...args, "--json", "bench.json");
  assert.equal(table.trim().split("\n").length >= 31, true, "a row for each run");
  assert.equal(await saved("#demo-text", "syncline-bench.txt"), table);
  assert.equal(await saved("#demo-json", "syncline-bench.json"), fs.readFileSync(at("bench.json"), "utf8"));
  const rows = await page.value(
    "[...document.querySelectorAll('#demo-table tr')].map((row) => [...row.cells].map((cell) => cell.textContent))",
  );
  const words = (line) => line.trim().split(/ {2,}/);
  assert.deepEqual(rows, table.split("\n").slice(0, rows.length).map(words));
  // A bar for each run, with the figure of the table.
  const bars = await page.value(
    "[...document.querySelectorAll('#demo-charts .value')].map((one) => [one.textContent, one.previousSibling.getAttribute('class')])",
  );
  const kind = (config) => `bar-${config.includes("packed") ? "packed" : config.split(" ")[0]}`;
  assert.deepEqual(bars, rows.slice(1).map(([, config, figure]) => [figure, kind(config)]));
});

test("other choices are those of the program, too", { skip }, async () => {
  await set("#demo-device", "sd-a2");
  for (const value of ["update", "delete", "ordered", "jbd2", "atomic"]) {
    await page.value(`document.querySelectorAll('#demo-form [value=${value}]').forEach((box) => (box.checked = false))`);
  }
  await page.click("#demo-form [value=wal]");
  const args = (await text("#demo-command")).split(" ").slice(1);
  assert.ok(args.includes("insert") && args.includes("wal") && args.includes("sd-a2"), String(args));
  await runDemo();
  assert.equal(await saved("#demo-text", "syncline-bench.txt"), lab(...args));
  // Nothing chosen: the page says what is missing.
  await page.click("#demo-form [value=wal]");
  assert.equal(await text("#demo-command"), "Choose a journal mode.");
  assert.equal(await page.value("document.querySelector('#demo-run').disabled"), true);
});

test("a run can be stopped, and what was finished stays", { skip }, async () => {
  await page.value("document.querySelector('#demo-form').reset()");
  await set("#demo-operations", "50");
  await page.value(
    `new MutationObserver((_, observer) => {
       if (document.querySelector('#demo-result').hidden) return;
       observer.disconnect();
       document.querySelector('#demo-stop').click();
     }).observe(document.querySelector('#demo-result'), { attributes: true })`,
  );
  await page.click("#demo-run");
  await page.until("document.querySelector('#demo-said').textContent");
  assert.match(await text("#demo-said"), /^Stopped/);
  assert.equal(await page.value("document.querySelectorAll('#demo-table tbody tr').length"), 5);
  await set("#demo-operations", "1");
  await runDemo();
  assert.equal(await page.value("document.querySelectorAll('#demo-table tbody tr').length"), 30);
});

test("a worker that dies is said, and the next run works", { skip }, async () => {
  await page.value(
    `{ const post = Worker.prototype.postMessage;
       Worker.prototype.postMessage = function () {
         Worker.prototype.postMessage = post;
         this.dispatchEvent(new ErrorEvent("error", { message: "out of memory", cancelable: true }));
       } }`,
  );
  await page.click("#demo-run");
  assert.match(await page.until("document.querySelector('#demo-alert').textContent"), /stopped its worker.*out of memory/);
  await runDemo();
  assert.equal(await text("#demo-alert"), "");
  assert.equal(await page.value("document.querySelectorAll('#demo-table tbody tr').length"), 30);
});

test("a trace wears the device as with the program", { skip }, async () => {
  await page.click("#tab-trace");
  await page.until("!document.querySelector('#trace-open').disabled");
  await openTrace("dpkg.blocks.trace");
  assert.match(await text("#trace-sentences"), /^No time follows from a trace of .* as --per-day 20\./);
  assert.equal(await page.value("document.querySelectorAll('#trace-wear .value').length"), 5);
  await set("#trace-per-day", "20");
  await page.click("#trace-run");
  await idle("trace");
  const file = "dpkg.blocks.trace";
  const both = `${lab("lifetime", "--trace", file, "--per-day", "20")}\n${lab("trace", "stat", file)}`;
  assert.equal(await saved("#trace-text", "syncline-trace.txt"), both);
  assert.match(await text("#trace-sentences"), /years until .* cycles/);
});

test("a trace of another format is imported", { skip }, async () => {
  await openTrace("blkparse.txt");
  assert.equal(await text("#trace-stat"), lab("trace", "stat", "blkparse.txt"));
  lab("trace", "import", "blkparse.txt", "--output", "imported.trace");
  const same = lab("lifetime", "--trace", "imported.trace", "--per-day", "20").replaceAll("imported.trace", "blkparse.txt");
  assert.ok((await saved("#trace-text", "syncline-trace.txt")).startsWith(same));
});

test("what is no trace of blocks is refused with the sentence of the program", { skip }, async () => {
  await openTrace("dpkg.calls.trace");
  assert.match(await text("#trace-sentences"), /^No lifetime: dpkg.calls.trace: a syscall trace has no places on a device/);
  assert.equal(await text("#trace-stat"), lab("trace", "stat", "dpkg.calls.trace"));
  const wrong = { noise: /of no known trace format/, empty: /the trace is empty/, "cut.trace": /\S/ };
  for (const [name, why] of Object.entries(wrong)) {
    await openTrace(name);
    const said = await text("#trace-alert");
    assert.match(said, why);
    assert.ok(said.startsWith(name[0].toUpperCase() + name.slice(1)), said);
    assert.equal(await isShown("#trace-result"), false);
  }
  await openTrace("dpkg.blocks.trace");
  assert.equal(await text("#trace-alert"), "");
  assert.equal(await isShown("#trace-result"), true);
});

test("all elements have names, and nothing is cut, wide and narrow", { skip }, async () => {
  for (const name of ["demo", "trace"]) {
    await page.click(`#tab-${name}`);
    const unnamed = await page.value(
      `[...document.querySelectorAll('button, input, select, table, progress, pre, svg[role], [role=region]')]
        .filter((one) => one.checkVisibility())
        .filter((one) => !(one.innerText || one.ariaLabel || one.labels?.length || one.caption)).map((one) => one.outerHTML)`,
    );
    assert.deepEqual(unnamed, []);
    for (const [width, height] of [[1280, 860], [768, 860], [390, 800]]) {
      await page.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
      await page.value("new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))");
      const outside = await page.value(
        `[...document.querySelectorAll('main *')].filter((one) => one.checkVisibility() && !one.closest('pre, .scrolls *, option'))
          .filter((one) => one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 80))`,
      );
      assert.deepEqual(outside, [], `${name}, ${width} pixels`);
      assert.equal(await page.value("document.documentElement.scrollWidth <= innerWidth"), true, `${name}, ${width} pixels`);
    }
  }
  await page.send("Emulation.clearDeviceMetricsOverride");
});

test("once used, the demo works without a network", { skip }, async () => {
  await page.value(
    `new Promise((resolve) => {
       const look = async () => ((await caches.match("lab.wasm")) ? resolve() : setTimeout(look, 25));
       look();
     })`,
  );
  server.close();
  await page.send("Network.emulateNetworkConditions", { offline: true, latency: 0, downloadThroughput: 0, uploadThroughput: 0 });
  await page.go(server.url);
  await page.click("#tab-demo");
  await page.until("!document.querySelector('#demo-run').disabled");
  await set("#demo-operations", "1");
  await runDemo();
  assert.equal(await page.value("document.querySelectorAll('#demo-table tbody tr').length"), 30);
  assert.deepEqual(page.console.filter(({ level }) => level !== "warning"), []);
});
