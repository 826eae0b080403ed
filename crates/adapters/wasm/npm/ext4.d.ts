import { Device, Scratch } from "./devices.js";

export * from "./devices.js";

/**
 * An error with a code: names of errno (`ENOENT`, `ENOSPC`, `EROFS`, ...), `EUCLEAN` for a damaged
 * image, `EOPNOTSUPP` for a feature or format that is not supported, `ECANCELED` for work that was
 * stopped, `ETRAP` for an image that stopped the module. `cause` is the error of a device.
 */
export class Ext4Error extends Error {
  readonly code: string;
}

/** Called during long work: `stage` names it. Returning false stops it. */
export type Progress = (stage: string, done: number, total: number) => boolean | void;

export type FileType =
  | "file" | "directory" | "symlink" | "character" | "block" | "fifo" | "socket" | "unknown";

/** Attributes of a file. Times are seconds since 1970. */
export interface Stat {
  inode: number;
  type: FileType;
  /** Permissions, 12 bits. */
  mode: number;
  /** Type and permissions as `ls -l` shows them. */
  modeText: string;
  uid: number;
  gid: number;
  links: number;
  size: number;
  /** Space in units of 512 bytes. */
  blocks: number;
  /** Number of a device file, as Linux has it. */
  device: number;
  mtime: number;
  atime: number;
  ctime: number;
  crtime: number;
  flags: number;
  /** Target of a symbolic link. */
  target?: string;
}

/**
 * An entry of a directory. Each byte of a name that is no UTF-8 is one of U+DC80 to U+DCFF. Where
 * the inode cannot be read, `error` says why and only `inode` and `type` are there.
 */
export interface Entry extends Stat {
  name: string;
  error?: string;
}

export interface Partition {
  number: number;
  offset: number;
  size: number;
  /** Name in a GPT, type in an MBR. */
  label: string;
  ext4: boolean;
}

/** The disk in a file. */
export interface Disk {
  size: number;
  /** The file is the disk itself; else it is a qcow2, VHD, VHDX, VMDK or Android sparse image. */
  raw: boolean;
  writable: boolean;
  compressed: boolean;
  ext4: boolean;
  /** What it is instead of an ext4, and the next step. */
  other?: string;
  tableError?: string;
  partitions: Partition[];
}

export interface Info {
  label: string;
  uuid: string;
  state: string;
  needsRecovery: boolean;
  size: number;
  blockSize: number;
  blocks: number;
  inodes: number;
  inodeSize: number;
  made: number;
  lastMount: number;
  lastWrite: number;
  lastCheck: number;
  mountsSinceCheck: number;
  errorsSeen: number;
  journalSize?: number;
  free?: number;
  available?: number;
  freeInodes?: number;
  features: string[];
}

export interface Finding {
  /** Stable name of the rule. */
  name: string;
  /** False for a notice. */
  error: boolean;
  inode?: number;
  block?: number;
  group?: number;
  text: string;
  /** What a repair does about it. */
  repair: string;
}

export interface Report {
  clean: boolean;
  errors: number;
  stopped: boolean;
  journalReplayed: boolean;
  files: number;
  directories: number;
  blocksUsed: number;
  orphans: number;
  /** Findings that were not kept. */
  more: number;
  findings: Finding[];
}

export interface RepairPlan {
  changes: number;
  before: Report;
  after: Report;
}

export interface Mounted {
  writable: boolean;
  /** The journal was replayed in memory; the device was not written to. */
  replayedInMemory: boolean;
  transactionsReplayed: number;
  orphans: number;
  /** With `rescue`: what was found damaged. */
  missing: string[];
}

export interface MountOptions {
  writable?: boolean;
  /** Reads go past damage; with "undelete" deleted files are in the folder `/.rescue`, too. */
  rescue?: boolean | "undelete";
}

export interface ScanOptions {
  /** Changes are allowed. The device needs `write`, and nobody else may have it open. */
  writable?: boolean;
  /** Where a compressed image is unpacked; memory of 256 MiB by default. */
  scratch?: Scratch;
  progress?: Progress;
}

export interface OpenOptions extends ScanOptions {
  /** Partition of a whole disk; the only one with an ext4 by default. */
  partition?: number;
  /** False: `choose` and `mount` are called later. */
  mount?: boolean;
  rescue?: MountOptions["rescue"];
}

/** Compiles the module: the file beside this one, or what is given. `open` does it by itself. */
export function load(
  source?: WebAssembly.Module | BufferSource | Promise<WebAssembly.Module | BufferSource>,
): Promise<WebAssembly.Module>;

export function open(device: Device, options?: OpenOptions): Promise<Image>;

export function format(
  device: Device,
  options?: { label?: string; type?: "ext2" | "ext3" | "ext4"; blockSize?: number },
): Promise<void>;

/** Bytes of a name or path. */
export function encode(text: string): Uint8Array;

/** An image. Paths begin with a slash. All calls are synchronous and throw an `Ext4Error`. */
export class Image {
  static scan(device: Device, options?: ScanOptions): Promise<Image>;
  readonly disk: Disk;
  readonly partition?: Partition;
  readonly writable: boolean;
  /** Bytes of memory of the module. */
  readonly memory: number;
  choose(partition?: number): void;
  mount(options?: MountOptions): Mounted;
  unmount(): void;
  /** Aborts open writers and writes everything back: the image is clean then. */
  close(): void;
  /** Returns when all changes are durable on the device. */
  sync(): void;

  info(): Info;
  check(progress?: Progress): Report;
  /** Unmounts, and says what a repair would do. */
  planRepair(progress?: Progress): RepairPlan;
  /** Writes the planned repair. Returns an undo file as `syncline repair` takes it. */
  repair(): Uint8Array;

  list(path?: string): Entry[];
  /** The same in parts of at most 1000. */
  listParts(path?: string): Generator<Entry[]>;
  stat(path: string): Stat;
  lstat(path: string): Stat;
  readlink(path: string): string;
  xattrs(path: string): Map<string, Uint8Array>;
  /** Fewer bytes than asked for only at the end of the file; at most 1 GiB. */
  read(path: string, offset: number, length: number): Uint8Array;
  /** Fills `into`; returns how many bytes there are, fewer only at the end of the file. */
  readInto(path: string, offset: number, into: Uint8Array): number;
  readParts(path: string, length?: number): Generator<Uint8Array>;
  readFile(path: string): Uint8Array;
  /**
   * Where the contents of a file are in the image: `[from, offset, length]` for each part, all else
   * is zeros. Undefined if they have to be read.
   */
  extents(path: string): [number, number, number][] | undefined;
  /** In hexadecimal; without a path, of the disk. */
  sha256(path?: string, progress?: Progress): string;
  /** The same in steps, each of which gives the bytes that are done and all bytes. */
  sha256Steps(path?: string): Generator<[number, number], string>;
  /**
   * A tree as a tar archive with owners, attributes, links and holes. `bytes` must not be kept: copy
   * them. Returning false ends it with `ECANCELED`. `part` gets places of the image whose bytes come
   * next and are not read, where files are stored so; returning false asks for the bytes. Returns
   * remarks on what was left out.
   */
  tar(
    path: string,
    sink: (bytes: Uint8Array) => boolean | void,
    part?: (offset: number, length: number) => boolean,
  ): string[];

  write(path: string, offset: number, bytes: Uint8Array, mode?: number): void;
  truncate(path: string, size: number): void;
  /** The file appears, or replaces another one, when all contents are there. */
  writeFile(
    path: string,
    contents: string | Uint8Array | Iterable<Uint8Array>,
    options?: { mode?: number },
  ): void;
  /**
   * The file appears at `close`; `abort`, and `unmount` or `close` of the image before that, remove what
   * was written, and `write` and `close` of the writer throw `EBADF` from then on. After a `write` that
   * failed they throw its error.
   */
  writer(
    path: string,
    options?: { mode?: number },
  ): { write(bytes: Uint8Array): void; close(): void; abort(): void };
  mkdir(path: string, options?: { mode?: number; parents?: boolean }): void;
  /** `keep`: fail with `EEXIST` where the new name is taken. */
  rename(from: string, to: string, options?: { keep?: boolean }): void;
  remove(path: string, options?: { recursive?: boolean }): void;
  symlink(target: string, path: string): void;
  link(path: string, name: string): void;
  chmod(path: string, mode: number): void;
  chown(path: string, uid: number, gid: number): void;
  utimes(path: string, mtime: number): void;
  setXattr(path: string, name: string, value: Uint8Array): void;
  removeXattr(path: string, name: string): void;
}
