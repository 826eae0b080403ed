/* Prints /motd of an image that is opened with options, as `container IMAGE OPTIONS`; else the error. */

#include <stdio.h>
#include <syncline.h>

int main(int argc, char **argv)
{
    syncline_volume volume;
    syncline_file file;
    char text[512] = "";
    int64_t got;
    int err;

    if (argc != 3)
        return 2;
    err = syncline_open(argv[1], argv[2], &volume);
    if (err < 0) {
        syncline_error(0, text, sizeof text);
        printf("%d %s\n", -err, text);
        return 0;
    }
    if (syncline_file_open(volume, "/motd", SYNCLINE_READ, 0, &file) < 0)
        return 1;
    got = syncline_file_read(file, text, sizeof text - 1);
    if (got < 0)
        return 1;
    fwrite(text, 1, (size_t)got, stdout);
    return syncline_close(volume) < 0;
}
