// An image written and read from Node, through koffi: node example.mjs IMAGE. SYNCLINE_LIBRARY may name the library.
import koffi from 'koffi';

const library = koffi.load(process.env.SYNCLINE_LIBRARY ?? 'libsyncline.so.0');
const mkfs = library.func('int syncline_mkfs(const char *path, uint64_t size_bytes, const char *label, int force)');
const open = library.func('int syncline_open(const char *path, const char *options, _Out_ uint64_t *volume)');
const close = library.func('int syncline_close(uint64_t volume)');
const error = library.func('size_t syncline_error(uint64_t handle, _Out_ uint8_t *text, size_t size)');
const mkdir = library.func('int syncline_mkdir(uint64_t volume, const char *path, uint32_t mode)');
const fileOpen = library.func(
  'int syncline_file_open(uint64_t volume, const char *path, unsigned int flags, uint32_t mode, _Out_ uint64_t *file)');
const fileClose = library.func('int syncline_file_close(uint64_t file)');
const fileSync = library.func('int syncline_file_sync(uint64_t file, int data_only)');
const write = library.func('int64_t syncline_file_pwrite(uint64_t file, const uint8_t *from, size_t len, uint64_t at)');
const read = library.func('int64_t syncline_file_pread(uint64_t file, _Out_ uint8_t *into, size_t len, uint64_t at)');

const READ = 1, WRITE = 2, CREATE = 8;

/** Throws the library's sentence for a negative errno. */
function checked(result, handle = 0) {
  if (result >= 0) return result;
  const text = Buffer.alloc(400);
  error(handle, text, text.length);
  throw new Error(text.toString('utf8', 0, text.indexOf(0)));
}

const [image] = process.argv.slice(2);
checked(mkfs(image, 32 << 20, 'node', 0));
const handle = [0];
checked(open(image, null, handle));
const volume = handle[0];
checked(mkdir(volume, '/logs', 0o755), volume);
checked(fileOpen(volume, '/logs/today', READ | WRITE | CREATE, 0o644, handle), volume);
const file = handle[0];
const bytes = Buffer.from('hello from Node\n');
checked(write(file, bytes, bytes.length, 0), file);
checked(fileSync(file, 0), file);
const back = Buffer.alloc(64);
process.stdout.write(back.subarray(0, Number(checked(read(file, back, back.length, 0), file))));
checked(fileClose(file));
checked(close(volume));
try {
  checked(mkdir(volume, '/late', 0o755));
} catch (err) {
  console.log(`closed: ${err.message}`);
}
