/* Plays a list of page numbers on FlashSim's BAST, for compare.py. */
#include <chrono>
#include <new>
#include "ssd.h"
using namespace ssd;

/* It counts on fresh memory for the number of the first free block. */
void *operator new(std::size_t bytes) { return calloc(1, bytes); }
void operator delete(void *memory) noexcept { free(memory); }
void operator delete(void *memory, std::size_t) noexcept { free(memory); }

/* Named by the controller, never built. */
#define NEVER(scheme, base) \
    scheme::scheme(Controller &controller) : base(controller) { abort(); } \
    scheme::~scheme() {} \
    enum status scheme::read(Event &) { abort(); } \
    enum status scheme::write(Event &) { abort(); } \
    enum status scheme::trim(Event &) { abort(); }
#define NEVER_DEMAND(scheme) \
    NEVER(scheme, FtlImpl_DftlParent) \
    void scheme::cleanup_block(Event &, Block *) { abort(); } \
    void scheme::print_ftl_statistics() { abort(); }
NEVER(FtlImpl_Page, FtlParent)
NEVER(FtlImpl_Fast, FtlParent)
void FtlImpl_Fast::print_ftl_statistics() { abort(); }
FtlImpl_DftlParent::FtlImpl_DftlParent(Controller &c) : FtlParent(c) { abort(); }
FtlImpl_DftlParent::~FtlImpl_DftlParent() {}
double FtlImpl_DftlParent::mpage_modified_ts_compare(const MPage &) { abort(); }
NEVER_DEMAND(FtlImpl_Dftl)
NEVER_DEMAND(FtlImpl_BDftl)

static double play(Ssd *ssd, const unsigned *page, const unsigned *end, double now_us)
{
    for (; page < end; page++)
        now_us += ssd->event_arrive(WRITE, *page, 1, now_us);
    return now_us;
}

/* FILE COUNT UNCOUNTED RESULT, and ssd.conf in the working directory */
int main(int argc, char **argv)
{
    long count = atol(argv[2]), uncounted = atol(argv[3]);
    FILE *file = fopen(argv[1], "rb");
    std::vector<unsigned> pages(count);
    if (!file || fread(pages.data(), 4, count, file) != (size_t)count)
        return 2;
    load_config();
    Ssd *ssd = new Ssd();
    double from_us = play(ssd, pages.data(), pages.data() + uncounted, 1);
    Stats before = ssd->get_controller().stats;
    auto started = std::chrono::steady_clock::now();
    double to_us = play(ssd, pages.data() + uncounted, pages.data() + count, from_us);
    std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started;
    const Stats &now = ssd->get_controller().stats;
    FILE *result = fopen(argv[4], "w");
    fprintf(result, "{\"host_writes\": %ld, \"programs\": %ld, \"map_programs\": %ld, "
            "\"erases\": %ld, \"device_s\": %.9f, \"elapsed_s\": %.6f}\n",
            count - uncounted, now.numFTLWrite - before.numFTLWrite,
            now.numGCWrite - before.numGCWrite, now.numFTLErase - before.numFTLErase,
            (to_us - from_us) / 1e6, elapsed.count());
    fclose(result);
    _Exit(0);
}
