// Images in files and on disks, for Node.

import fs from "node:fs";

import { format, open } from "./ext4.js";

export * from "./ext4.js";

/** A file or a disk. */
export class FileDevice {
  constructor(path, { writable = false } = {}) {
    this.fd = fs.openSync(path, writable ? "r+" : "r");
    const stat = fs.fstatSync(this.fd);
    this.size = stat.isFile() ? stat.size : endOf(this.fd);
    if (writable) this.write = this.#write;
  }

  readInto(offset, into) {
    for (let done = 0; done < into.length; ) {
      const read = fs.readSync(this.fd, into, done, into.length - done, offset + done);
      if (read === 0) throw new Error("the file ends early");
      done += read;
    }
  }

  #write(offset, bytes) {
    for (let done = 0; done < bytes.length; ) {
      done += fs.writeSync(this.fd, bytes, done, bytes.length - done, offset + done);
    }
  }

  flush() {
    fs.fdatasyncSync(this.fd);
  }

  /** Once: the number may be that of another file afterwards. */
  close() {
    const { fd } = this;
    this.fd = undefined;
    if (fd !== undefined) fs.closeSync(fd);
  }
}

/** Size of a disk: the last byte that can be read, found by halves. */
function endOf(fd) {
  const byte = new Uint8Array(1);
  const has = (at) => fs.readSync(fd, byte, 0, 1, at) === 1;
  let [low, high] = [0, 2 ** 50];
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (has(middle)) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Opens an image by its path. `close` closes the file, too. */
export async function openFile(path, options = {}) {
  const device = new FileDevice(path, options);
  try {
    const image = await open(device, options);
    const close = image.close.bind(image);
    image.close = () => {
      let isBusy = false;
      try {
        close();
      } catch (error) {
        // Another call goes on, which needs the file.
        isBusy = error.code === "EBUSY";
        throw error;
      } finally {
        if (!isBusy) device.close();
      }
    };
    return image;
  } catch (error) {
    device.close();
    throw error;
  }
}

/** Makes an image of so many bytes with an empty ext4. */
export async function formatFile(path, size, options = {}) {
  fs.closeSync(fs.openSync(path, "wx"));
  fs.truncateSync(path, size);
  const device = new FileDevice(path, { writable: true });
  try {
    await format(device, options);
  } finally {
    device.close();
  }
}
