/* What the C programs of this test share. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "syncline.h"

/* Opens with the options that the test names besides. */
static inline int open_as_asked(const char *path, const char *options, syncline_volume *volume)
{
    const char *more = getenv("SYNCLINE_TEST_OPTIONS");
    char all[4500];
    if (!more)
        return syncline_open(path, options, volume);
    snprintf(all, sizeof all, "%s,%s", options ? options : "", more);
    return syncline_open(path, all, volume);
}
#define syncline_open open_as_asked

static inline void fail(const char *file, int line, const char *what, long long is, long long wanted,
                        uint64_t handle)
{
    char text[400];
    syncline_error(handle, text, sizeof text);
    fprintf(stderr, "%s:%d: %s is %lld, not %lld: %s\n", file, line, what, is, wanted, text);
    exit(1);
}

#define IS_OF(handle, call, wanted)                                                                          \
    do {                                                                                                     \
        long long is_ = (long long)(call), wanted_ = (long long)(wanted);                                    \
        if (is_ != wanted_)                                                                                  \
            fail(__FILE__, __LINE__, #call, is_, wanted_, handle);                                           \
    } while (0)
#define IS(call, wanted) IS_OF(0, call, wanted)
#define OK(call) IS(call, 0)
#define CHECK(condition) IS(!!(condition), 1)

#define BAD_OFFSET (UINT64_C(1) << 63)
