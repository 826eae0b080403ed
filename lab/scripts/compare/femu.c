/* Plays a list of page numbers on FEMU's translation layer, for compare.py. */
#include <time.h>
#include "hw/femu/bbssd/ftl.c"

static long erases(struct ssd *ssd)
{
    long sum = 0;
    for (int i = 0; i < ssd->sp.blks_per_pl; i++)
        sum += ssd->ch[0].lun[0].pl[0].blk[i].erase_cnt;
    return sum;
}

static void play(struct ssd *ssd, const unsigned *pages, long count)
{
    for (long i = 0; i < count; i++) {
        NvmeRequest request = { .slba = 8ull * pages[i], .nlb = 8, .stime = now_ns };
        now_ns += ssd_write(ssd, &request);
        if (should_gc(ssd))
            do_gc(ssd, false);
    }
}

/* FILE COUNT UNCOUNTED BLOCKS PAGES_PER_BLOCK DIES RESERVE */
int main(int argc, char **argv)
{
    long count = atol(argv[2]), uncounted = atol(argv[3]);
    int dies = atoi(argv[6]), reserve = atoi(argv[7]);
    FILE *file = fopen(argv[1], "rb");
    unsigned *pages = malloc(count * sizeof(*pages));
    if (!file || fread(pages, sizeof(*pages), count, file) != (size_t)count)
        return 2;
    struct ssd ssd = { .ssdname = "theirs" };
    FemuCtrl control = { .ssd = &ssd, .bb_params = {
        .secsz = 512, .secs_per_pg = 8, .pgs_per_blk = atoi(argv[5]), .blks_per_pl = atoi(argv[4]),
        .pls_per_lun = 1, .luns_per_ch = 1, .nchs = dies, .pg_rd_lat = NAND_READ_LATENCY,
        .pg_wr_lat = NAND_PROG_LATENCY, .blk_er_lat = NAND_ERASE_LATENCY,
        .gc_thres_pcent = 75, .gc_thres_pcent_high = 95 } };
    ssd_init(&control);
    if (reserve >= 0) {
        /* Free lines besides the one that is written: none is collected before. */
        ssd.sp.gc_thres_lines = -1;
        ssd.sp.gc_thres_lines_high = reserve;
    }
    play(&ssd, pages, uncounted);
    long commands = collector_commands, erased = erases(&ssd), from_ns = now_ns;
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    play(&ssd, pages + uncounted, count - uncounted);
    clock_gettime(CLOCK_MONOTONIC, &b);
    commands = collector_commands - commands;
    erased = erases(&ssd) - erased;
    printf("{\"host_writes\": %ld, \"programs\": %ld, \"erases\": %ld, \"device_s\": %.9f, "
           "\"elapsed_s\": %.6f}\n", count - uncounted,
           count - uncounted + (commands - erased * dies) / 2, erased, (now_ns - from_ns) / 1e9,
           (b.tv_sec - a.tv_sec) + (b.tv_nsec - a.tv_nsec) / 1e9);
    return 0;
}
