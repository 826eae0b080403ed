// A headless Chromium, driven over a pipe, and a server of static files.

import { spawn } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";

const TYPES = {
  ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml",
  ".wasm": "application/wasm", ".webmanifest": "application/manifest+json",
};
/** Longest wait for anything in the page: only what hangs takes so long, on a busy machine, too. */
const WAIT_MS = 300_000;

/** Serves a folder on this machine; `asked` gets each path. */
export async function serve(folder, asked) {
  const server = http.createServer((request, answer) => {
    const name = new URL(request.url, "http://x").pathname;
    asked(name);
    const file = path.join(folder, name.endsWith("/") ? `${name}index.html` : name);
    fs.readFile(file, (error, bytes) => {
      if (error) return answer.writeHead(404).end();
      return answer.writeHead(200, { "content-type": TYPES[path.extname(file)] ?? "" }).end(bytes);
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() };
}

/** Starts Chromium; undefined where there is none. */
export function start() {
  const names = ["chromium", "chromium-browser", "google-chrome"];
  const folders = process.env.PATH.split(":");
  const program = names.flatMap((name) => folders.map((folder) => path.join(folder, name)))
    .find((file) => fs.existsSync(file));
  return program && new Chromium(program);
}

class Chromium {
  #number = 0;
  #calls = new Map();
  #rest = "";
  /** Errors and messages of the page's console. */
  console = [];

  constructor(program) {
    this.dir = fs.mkdtempSync(path.join(os.tmpdir(), "ext4-page-"));
    const args = [
      "--headless=new", "--remote-debugging-pipe", `--user-data-dir=${this.dir}`, "--no-first-run",
      "--disable-gpu", "--disable-dev-shm-usage", "--no-sandbox", "--hide-scrollbars",
      "--enable-precise-memory-info", "about:blank",
    ];
    this.process = spawn(program, args, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    this.process.stdio[4].setEncoding("utf8").on("data", (text) => this.#take(text));
  }

  #take(text) {
    const parts = (this.#rest + text).split("\0");
    this.#rest = parts.pop();
    for (const part of parts) {
      const { id, method, params, result, error } = JSON.parse(part);
      const call = this.#calls.get(id);
      this.#calls.delete(id);
      if (call && error) call.reject(new Error(`${call.method}: ${error.message}`));
      else if (call) call.resolve(result);
      else if (method === "Runtime.exceptionThrown") this.console.push(params.exceptionDetails);
      else if (method === "Log.entryAdded") this.console.push(params.entry);
    }
  }

  send(method, params = {}) {
    this.#number += 1;
    const message = { id: this.#number, method, params, sessionId: this.session };
    this.process.stdio[3].write(`${JSON.stringify(message)}\0`);
    return new Promise((resolve, reject) => {
      this.#calls.set(this.#number, { method, resolve, reject });
    });
  }

  /** Opens a page; `downloads` is the folder of what it downloads. */
  async open(url, downloads) {
    const behavior = { behavior: "allow", downloadPath: downloads };
    await this.send("Browser.setDownloadBehavior", behavior);
    const { targetId } = await this.send("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    this.session = sessionId;
    for (const domain of ["Page", "Runtime", "Log", "DOM", "Network"]) await this.send(`${domain}.enable`);
    await this.go(url);
  }

  async go(url) {
    await this.send("Page.navigate", { url });
    await this.until("document.readyState === 'complete'");
  }

  /** Value of an expression in the page. */
  async value(expression) {
    const how = { expression, awaitPromise: true, returnByValue: true, userGesture: true };
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", how);
    if (exceptionDetails) {
      throw new Error(`${expression}: ${exceptionDetails.exception?.description}`);
    }
    return result.value;
  }

  /** Waits until an expression is true, and returns its value. */
  async until(expression, wait = WAIT_MS) {
    const end = Date.now() + wait;
    for (;;) {
      const value = await this.value(expression);
      if (value) return value;
      if (Date.now() > end) {
        const said = await this.value("document.body.innerText");
        throw new Error(`${expression} did not come true; the page says: ${said}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
  }

  async files(selector, ...files) {
    const { root } = await this.send("DOM.getDocument");
    const { nodeId } = await this.send("DOM.querySelector", { nodeId: root.nodeId, selector });
    await this.send("DOM.setFileInputFiles", { nodeId, files });
  }

  click(selector) {
    return this.value(`document.querySelector(${JSON.stringify(selector)}).click()`);
  }

  async key(key, code = 0) {
    const event = { key, code: key, windowsVirtualKeyCode: code, text: key === "Enter" ? "\r" : undefined };
    await this.send("Input.dispatchKeyEvent", { type: "keyDown", ...event });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", ...event });
  }

  /** The processes of pages and workers. */
  #renderers() {
    const found = [];
    for (const pid of fs.readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
      try {
        const line = fs.readFileSync(`/proc/${pid}/cmdline`, "latin1");
        if (line.includes("--type=renderer") && line.includes(this.dir)) found.push(pid);
      } catch {
        // It has just ended.
      }
    }
    return found;
  }

  /**
   * Bytes of memory of the largest process of the page since the last call, its part of Chromium's
   * own libraries included: Linux keeps the highest resident size (VmHWM).
   */
  peak() {
    const sizes = this.#renderers().map((pid) => {
      const peak = Number(fs.readFileSync(`/proc/${pid}/status`, "latin1").match(/VmHWM:\s+(\d+)/)[1]);
      fs.writeFileSync(`/proc/${pid}/clear_refs`, "5");
      return peak * 1024;
    });
    return Math.max(...sizes);
  }

  /** A picture of the window of this width. */
  async picture(file, width, height, dark, whole = true) {
    const metrics = { width, height, deviceScaleFactor: 1, mobile: width < 600 };
    await this.send("Emulation.setDeviceMetricsOverride", metrics);
    const features = [{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }];
    await this.send("Emulation.setEmulatedMedia", { features });
    await this.value("new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 150)))");
    const { data } = await this.send("Page.captureScreenshot", { captureBeyondViewport: whole });
    fs.writeFileSync(file, Buffer.from(data, "base64"));
  }

  async close() {
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.session = undefined;
    this.send("Browser.close").catch(() => {});
    const timer = setTimeout(() => this.process.kill("SIGKILL"), 5000);
    await ended;
    clearTimeout(timer);
    fs.rmSync(this.dir, { recursive: true, force: true, maxRetries: 5 });
  }
}
