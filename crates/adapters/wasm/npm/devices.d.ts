/**
 * What an image is read from and written to. All functions return when they are done, and throw
 * if they fail.
 */
export interface Device {
  /** Bytes. */
  readonly size: number;
  /** Returns `length` bytes from `offset` on. One of `read` and `readInto` is needed. */
  read?(offset: number, length: number): Uint8Array;
  /** Fills `into` from `offset` on. `into` must not be kept. */
  readInto?(offset: number, into: Uint8Array): void;
  /** Needed to change the image. `bytes` must not be kept. */
  write?(offset: number, bytes: Uint8Array): void;
  /** Makes what was written durable. A device without it is durable at once. */
  flush?(): void;
}

/** A device that grows where it is written to. */
export interface Scratch extends Device {
  readInto(offset: number, into: Uint8Array): void;
  write(offset: number, bytes: Uint8Array): void;
}

/** A File or Blob of a browser, read by ranges. Works in a worker. */
export class BlobDevice implements Device {
  constructor(blob: Blob);
  readonly size: number;
  readInto(offset: number, into: Uint8Array): void;
}

/** A FileSystemSyncAccessHandle of a browser's private files. */
export class HandleDevice implements Scratch {
  constructor(handle: {
    getSize(): number;
    read(into: Uint8Array, options: { at: number }): number;
    write(bytes: Uint8Array, options: { at: number }): number;
    flush(): void;
  });
  readonly size: number;
  readInto(offset: number, into: Uint8Array): void;
  write(offset: number, bytes: Uint8Array): void;
  flush(): void;
}

/** Bytes in memory; those that were never written are zeros and take no room. */
export class MemoryDevice implements Scratch {
  /** `limit`: bytes of memory that it takes at most; 256 MiB by default. */
  constructor(size?: number, limit?: number);
  readonly size: number;
  readInto(offset: number, into: Uint8Array): void;
  write(offset: number, bytes: Uint8Array): void;
  flush(): void;
}

/** Changes to a device that is only read. The changed pieces are in `scratch`. */
export class OverlayDevice implements Device {
  constructor(base: Device, scratch: Scratch);
  readonly size: number;
  readonly changedBytes: number;
  isChanged(offset: number, length: number): boolean;
  readInto(offset: number, into: Uint8Array): void;
  write(offset: number, bytes: Uint8Array): void;
  flush(): void;
  /** The changes in order, with their places. */
  changes(): Generator<[number, Uint8Array]>;
}
