// Memory of the page in headless Chromium while it does each of its actions on large files and folders.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import crypto from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { serve, start } from "./chromium.js";

process.env.PATH += ":/usr/sbin:/sbin";

const root = fileURLToPath(new URL("../../../../", import.meta.url));
/** What the page may take, of which some 120 MB are Chromium's own. */
const MOST = 300_000_000;
const LARGE = 100_000_000;
const run = (program, ...args) => execFileSync(program, args, { stdio: ["ignore", "ignore", "pipe"] });
const noise = (length, seed) =>
  crypto.createCipheriv("aes-256-ctr", Buffer.alloc(32, seed), Buffer.alloc(16)).update(Buffer.alloc(length));

let dir, server, page;
const at = (name) => path.join(dir, name);

before(async () => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), "ext4-memory-"));
  fs.mkdirSync(at("downloads"));
  // A folder of 300 MB: some large files, many of 5 MB, and 2,000 small ones.
  fs.mkdirSync(at("tree/folder/small"), { recursive: true });
  fs.writeFileSync(at("tree/large"), noise(LARGE, 1));
  fs.writeFileSync(at("tree/folder/middle"), noise(64 << 20, 2));
  for (let n = 0; n < 30; n += 1) fs.writeFileSync(at(`tree/folder/part${n}`), noise(5 << 20, n));
  for (let n = 0; n < 2000; n += 1) fs.writeFileSync(at(`tree/folder/small/${n}`), noise(20_000, n % 256));
  run("mke2fs", "-q", "-t", "ext4", "-d", at("tree"), at("card.img"), "100G");
  run("qemu-img", "convert", "-O", "qcow2", at("card.img"), at("card.qcow2"));
  server = await serve(path.join(root, "target/web"), () => {});
  page = start();
  await page.open(server.url, at("downloads"));
});

after(async () => {
  await page?.close();
  server?.close();
  fs.rmSync(dir, { recursive: true });
});

const idle = () => page.until("document.body.ariaBusy !== 'true'");

/** Does something, and says what memory and time it took. */
async function within(what, bytes, work) {
  const begun = performance.now();
  await work();
  const ms = performance.now() - begun;
  const peak = page.peak();
  const speed = bytes ? `, ${(bytes / 1000 / ms).toFixed(0)} MB/s` : "";
  console.log(`# ${what}: ${(peak / 1e6).toFixed(0)} MB${speed}`);
  assert.ok(peak < MOST, `${what} took ${peak} bytes`);
}

async function open(name) {
  await page.value("document.querySelector('#rows').replaceChildren()");
  await page.files("#file", at(name));
  if (await page.value("document.querySelector('#ask').open")) await page.click("#ask-yes");
  await page.until("!document.querySelector('#work').hidden && document.querySelector('#rows').children.length");
  await idle();
}

async function tap(name) {
  await page.value(
    `[...document.querySelectorAll('#rows tr')].find((row) => row.cells[0].textContent.startsWith(${JSON.stringify(name)})).click()`,
  );
  await idle();
}

/** Downloads with a button; `length` is what has to come, undefined if it is at least the folder. */
async function get(button, name, length) {
  await page.click(button);
  await page.until("document.querySelector('#said').textContent.includes('read')");
  const file = path.join(dir, "downloads", name);
  for (let n = 0; !fs.statSync(file, { throwIfNoEntry: false })?.size; n += 1) {
    assert.ok(n < 12_000, `${name} was not downloaded`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  const { size } = fs.statSync(file);
  if (length) assert.equal(size, length);
  else assert.ok(size > 250_000_000, `${name} has ${size} bytes`);
  const bytes = length && fs.readFileSync(file);
  fs.rmSync(file);
  await idle();
  await page.value("document.querySelector('#said').textContent = ''");
  return bytes;
}

async function everyAction(kind) {
  await within(`${kind}: open`, 0, () => open(`card.${kind}`));
  await within(`${kind}: show a large file`, 0, () => tap("large"));
  await within(`${kind}: copy out`, LARGE, async () => {
    const bytes = await get("#get", "large", LARGE);
    assert.ok(bytes.equals(noise(LARGE, 1)));
  });
  await within(`${kind}: SHA-256`, LARGE, async () => {
    await page.click("#sum");
    await page.until("document.querySelector('#digest').textContent.length > 70");
    await idle();
  });
  await tap("folder");
  await within(`${kind}: zip`, 300e6, () => get("#get-zip", "folder.zip"));
  await within(`${kind}: tar`, 300e6, () => get("#get-tar", "folder.tar"));
  await within(`${kind}: largest`, 0, async () => {
    await page.click("#tab-info");
    await page.until("document.querySelectorAll('#facts tr').length > 5");
    await page.click("#find-largest");
    await page.until("!document.querySelector('#largest').hidden");
    await idle();
  });
  await within(`${kind}: check`, 0, async () => {
    await page.click("#tab-check");
    await page.click("#run-check");
    await page.until("document.querySelector('#verdict').textContent.startsWith('Clean')");
    await idle();
  });
  await page.click("#tab-files");
}

test("a raw image of 100 GB", () => everyAction("img"));

test("a changed image", async () => {
  await open("card.img");
  fs.writeFileSync(at("added"), noise(LARGE, 7));
  await within("changed: add", LARGE, async () => {
    await page.files("#add-files", at("added"));
    await page.until("document.querySelector('#rows').innerText.includes('added')");
    await idle();
  });
  await tap("large");
  await within("changed: copy out", LARGE, () => get("#get", "large", LARGE));
  await tap("added");
  await within("changed: copy out what was added", LARGE, async () => {
    const bytes = await get("#get", "added", LARGE);
    assert.ok(bytes.equals(noise(LARGE, 7)));
  });
  await tap("folder");
  await within("changed: zip", 300e6, () => get("#get-zip", "folder.zip"));
  await within("changed: tar", 300e6, () => get("#get-tar", "folder.tar"));
});

test("a qcow2 image", () => everyAction("qcow2"));
