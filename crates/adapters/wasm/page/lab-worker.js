// The laboratory in a worker: `syncline-lab` as WebAssembly. A run ends with its worker.

/** Time between two reports of progress. */
const PROGRESS_MS = 100;

let file;
let memory;
let next = 0;
let panic;

const text = (at, length) => new TextDecoder().decode(new Uint8Array(memory.buffer, at, length));

const host = {
  read(at, into, length) {
    try {
      const bytes = new FileReaderSync().readAsArrayBuffer(file.slice(at, at + length));
      if (bytes.byteLength < length) return 0;
      new Uint8Array(memory.buffer, into, length).set(new Uint8Array(bytes));
      return 1;
    } catch {
      return 0;
    }
  },

  progress(what, length, done, total) {
    const now = performance.now();
    // A total of 0 begins a stage, which is always shown.
    if (total && now < next) return;
    next = now + PROGRESS_MS;
    postMessage({ progress: { what: text(what, length), done, total } });
  },

  part(at, length) {
    postMessage({ part: JSON.parse(text(at, length)) });
  },

  panicked(at, length) {
    panic = text(at, length);
  },
};

const loaded = WebAssembly.instantiateStreaming(fetch("lab.wasm"), { host }).then(({ instance }) => {
  ({ memory } = instance.exports);
  instance.exports.start();
  return instance.exports;
});

addEventListener("message", async ({ data: { call, given, blob } }) => {
  file = blob;
  try {
    const lab = await loaded;
    const request = new TextEncoder().encode(JSON.stringify(given ?? null));
    // The memory may grow in this call, and is another buffer then.
    const at = lab.input(request.length);
    new Uint8Array(memory.buffer, at, request.length).set(request);
    const length = lab[call]();
    if (length < 0) postMessage({ error: text(lab.output(), -1 - length) });
    else postMessage({ result: JSON.parse(text(lab.output(), length)) });
  } catch (error) {
    // A trap: nothing in this worker can be relied on, and the page makes a new one.
    postMessage({ died: panic ?? error.message });
  }
});
