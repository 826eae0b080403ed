/* Writes 100 chunks in another order, opens the log again, and makes the file. */
#include <flashlite.h>
#include <stdio.h>
#include <string.h>

#define CHUNK 10240
#define CHUNKS 100

#define CHECK(what)                                                                     \
    do {                                                                                \
        if (!(what)) {                                                                  \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, flashlite_message()); \
            return 1;                                                                   \
        }                                                                               \
    } while (0)

static int tell(void *context, uint64_t done, uint64_t total) {
    *(uint64_t *)context = done;
    return done > total;
}

static int stop(void *context, uint64_t done, uint64_t total) {
    (void)context;
    (void)done;
    (void)total;
    return 1;
}

int main(void) {
    unsigned char chunk[CHUNK], back[CHUNK];
    uint64_t seen = 0;
    int i;
    flashlite *log = flashlite_create("log");
    CHECK(log != NULL);
    CHECK(flashlite_set_tags_at_once(log, 8) == FLASHLITE_OK);
    for (i = 0; i < CHUNKS; i++) {
        int place = i * 37 % CHUNKS;
        memset(chunk, place + 1, CHUNK);
        CHECK(flashlite_pwrite(log, chunk, CHUNK, (uint64_t)place * CHUNK) == FLASHLITE_OK);
        CHECK(flashlite_pread(log, back, CHUNK, (uint64_t)place * CHUNK) == CHUNK);
        CHECK(memcmp(chunk, back, CHUNK) == 0);
    }
    CHECK(flashlite_set_size(log, (uint64_t)CHUNK * CHUNKS + 5) == FLASHLITE_OK);
    CHECK(flashlite_sync(log) == FLASHLITE_OK);
    CHECK(flashlite_create("log") == NULL && strlen(flashlite_message()) > 0);
    CHECK(flashlite_open("log", 0) == NULL);
    CHECK(flashlite_close(log) == FLASHLITE_OK);
    log = flashlite_open("log", 1);
    CHECK(log != NULL && flashlite_dropped_bytes(log) == 0);
    CHECK(flashlite_pwrite(log, chunk, 1, 0) == FLASHLITE_EUSAGE);
    CHECK(flashlite_close(log) == FLASHLITE_OK);
    log = flashlite_open("log", 0);
    CHECK(log != NULL && flashlite_size(log) == (uint64_t)CHUNK * CHUNKS + 5);
    CHECK(flashlite_pread(log, back, CHUNK, (uint64_t)CHUNK * CHUNKS) == 5);
    CHECK(flashlite_rearrange(log, "file", 1, stop, NULL) == FLASHLITE_ESTOPPED);
    CHECK(flashlite_rearrange(log, "file", 1, tell, &seen) == FLASHLITE_OK);
    CHECK(flashlite_rearrange(log, "file", 1, tell, &seen) == FLASHLITE_EIO);
    CHECK(strstr(flashlite_message(), "choose another name") != NULL);
    CHECK(flashlite_rearrange(log, "no/file", 0, NULL, NULL) == FLASHLITE_EIO);
    CHECK(flashlite_rearrange(log, NULL, 0, NULL, NULL) == FLASHLITE_EUSAGE);
    CHECK(seen == 0 || seen == (uint64_t)CHUNK * CHUNKS + 5);
    CHECK(flashlite_pread(log, back, 1, 0) == FLASHLITE_EMOVED);
    CHECK(flashlite_close(log) == FLASHLITE_OK);
    CHECK(flashlite_open("download", 1) == NULL);
    CHECK(flashlite_open("no/log", 0) == NULL && flashlite_create("no/log") == NULL);
    CHECK(strstr(flashlite_message(), "check the path") != NULL);
    log = flashlite_create_paged("paged", 16384);
    CHECK(log != NULL && flashlite_pwrite(log, chunk, CHUNK, 0) == FLASHLITE_OK);
    CHECK(flashlite_close(log) == FLASHLITE_OK);
    CHECK(flashlite_create_paged("odd", 5000) == NULL);
    CHECK(strstr(flashlite_message(), "choose such sizes") != NULL);
    log = flashlite_create("odd");
    CHECK(log != NULL && flashlite_close(log) == FLASHLITE_OK);
    CHECK(flashlite_open(NULL, 0) == NULL && flashlite_create(NULL) == NULL);
    CHECK(flashlite_pread(NULL, back, 1, 0) == FLASHLITE_EUSAGE);
    CHECK(flashlite_set_tags_at_once(NULL, 8) == FLASHLITE_EUSAGE);
    CHECK(flashlite_close(NULL) == FLASHLITE_EUSAGE);
    return 0;
}
