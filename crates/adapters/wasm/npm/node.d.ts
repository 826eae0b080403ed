import { Device } from "./devices.js";
import { Image, OpenOptions } from "./ext4.js";

export * from "./ext4.js";

/** A file or a disk. Nothing locks it: no other program may have it open to write. */
export class FileDevice implements Device {
  constructor(path: string, options?: { writable?: boolean });
  readonly size: number;
  readInto(offset: number, into: Uint8Array): void;
  write?(offset: number, bytes: Uint8Array): void;
  flush(): void;
  close(): void;
}

/** Opens an image by its path. Its `close` closes the file, too. */
export function openFile(path: string, options?: OpenOptions): Promise<Image>;

/** Makes an image of so many bytes with an empty ext4. */
export function formatFile(
  path: string,
  size: number,
  options?: { label?: string; type?: "ext2" | "ext3" | "ext4"; blockSize?: number },
): Promise<void>;
