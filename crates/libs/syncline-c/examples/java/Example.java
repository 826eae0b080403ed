// An image written and read from Java, through JNA: java -cp jna.jar Example.java IMAGE. jna.library.path names the
// directory of the library.
import com.sun.jna.Library;
import com.sun.jna.Native;
import com.sun.jna.ptr.LongByReference;
import java.nio.charset.StandardCharsets;

public final class Example {
    /** The functions that this program uses; syncline.h has all. */
    public interface Syncline extends Library {
        int syncline_mkfs(String path, long sizeBytes, String label, int force);

        int syncline_open(String path, String options, LongByReference volume);

        int syncline_close(long volume);

        long syncline_error(long handle, byte[] text, long size);

        int syncline_mkdir(long volume, String path, int mode);

        int syncline_file_open(long volume, String path, int flags, int mode, LongByReference file);

        int syncline_file_close(long file);

        int syncline_file_sync(long file, int dataOnly);

        long syncline_file_pwrite(long file, byte[] from, long len, long offset);

        long syncline_file_pread(long file, byte[] into, long len, long offset);
    }

    private static final int READ = 1;
    private static final int WRITE = 2;
    private static final int CREATE = 8;

    private static final Syncline SYNCLINE = Native.load("syncline", Syncline.class);

    /** Throws the library's sentence for a negative errno. */
    private static long checked(long result, long handle) {
        if (result >= 0) {
            return result;
        }
        byte[] text = new byte[400];
        SYNCLINE.syncline_error(handle, text, text.length);
        throw new IllegalStateException(Native.toString(text, "UTF-8"));
    }

    public static void main(String[] words) {
        String image = words[0];
        checked(SYNCLINE.syncline_mkfs(image, 32 << 20, "java", 0), 0);
        LongByReference handle = new LongByReference();
        checked(SYNCLINE.syncline_open(image, null, handle), 0);
        long volume = handle.getValue();
        checked(SYNCLINE.syncline_file_open(volume, "/today", READ | WRITE | CREATE, 0644, handle), volume);
        long file = handle.getValue();
        byte[] bytes = "hello from Java\n".getBytes(StandardCharsets.UTF_8);
        checked(SYNCLINE.syncline_file_pwrite(file, bytes, bytes.length, 0), file);
        checked(SYNCLINE.syncline_file_sync(file, 0), file);
        byte[] back = new byte[64];
        long done = checked(SYNCLINE.syncline_file_pread(file, back, back.length, 0), file);
        System.out.print(new String(back, 0, (int) done, StandardCharsets.UTF_8));
        checked(SYNCLINE.syncline_file_close(file), file);
        checked(SYNCLINE.syncline_close(volume), volume);
        try {
            checked(SYNCLINE.syncline_mkdir(volume, "/late", 0755), 0);
        } catch (IllegalStateException err) {
            System.out.println("closed: " + err.getMessage());
        }
    }
}
