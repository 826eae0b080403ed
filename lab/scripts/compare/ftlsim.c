/* Plays a list of page numbers on SSSL-ftlsim, for compare.py. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "ftlsim.h"

static unsigned *pages;
static size_t at;
static long erases;
static struct segment *(*chosen)(struct pool *);

static int next_page(void *self) { return (int)pages[at++]; }

static struct segment *counted(struct pool *pool) { erases++; return chosen(pool); }

/* Whose best victim holds less. */
static struct pool *best_of_both(struct ftl *ftl)
{
    struct pool *a = ftl->pools[0], *b = ftl->pools[1];
    return b->tail_utilization(b) < a->tail_utilization(a) ? b : a;
}

static struct pool *pool_new(struct ftl *ftl, const char *victims, int per_block)
{
    struct pool *pool =
        victims[0] == 'g' ? greedy_pool_new(ftl, per_block) : lru_pool_new(ftl, per_block);
    chosen = pool->getseg;
    pool->getseg = counted;
    pool->addseg(pool, do_get_blk(ftl));
    return pool;
}

/* FILE COUNT UNCOUNTED BLOCKS PAGES_PER_BLOCK RESERVE VICTIMS FRONTIERS */
int main(int argc, char **argv)
{
    long count = atol(argv[2]), uncounted = atol(argv[3]);
    int blocks = atoi(argv[4]), per_block = atoi(argv[5]), frontiers = atoi(argv[8]);
    FILE *file = fopen(argv[1], "rb");
    pages = malloc(count * sizeof(*pages));
    if (!file || fread(pages, sizeof(*pages), count, file) != (size_t)count)
        return 2;
    struct ftl *ftl = ftl_new(blocks, per_block);
    ftl->minfree = atoi(argv[6]);
    ftl->get_input_pool = write_select_first;
    ftl->get_pool_to_clean = frontiers == 2 ? best_of_both : clean_select_first;
    for (int i = 0; i < blocks; i++)
        do_put_blk(ftl, segment_new(per_block));
    struct pool *first = pool_new(ftl, argv[7], per_block);
    first->next_pool = first;
    if (frontiers == 2) {
        struct pool *copies = pool_new(ftl, argv[7], per_block);
        first->next_pool = copies->next_pool = copies;
    }
    struct getaddr source = { next_page, 0, 0 };
    do_ftl_run(ftl, &source, uncounted);
    long programs = ftl->int_writes, writes = ftl->ext_writes, erased = erases;
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    do_ftl_run(ftl, &source, count - uncounted);
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("{\"host_writes\": %ld, \"programs\": %ld, \"erases\": %ld, \"elapsed_s\": %.6f}\n",
           ftl->ext_writes - writes, ftl->int_writes - programs, erases - erased,
           (b.tv_sec - a.tv_sec) + (b.tv_nsec - a.tv_nsec) / 1e9);
    return 0;
}
