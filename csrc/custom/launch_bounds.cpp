/* A GPU refuses a block with more threads than __launch_bounds__ of its kernel allows. */
#include "../emulator/block.h"

void grid_check_bounds(int most, int line)
{
    const int threads = block_thread_count();
    if (threads > most) {
        block_fail(status_error(STATUS_DEVICE,
                                "the block has %d threads, and __launch_bounds__ in line %d "
                                "allows %d: launch fewer threads, or raise the bound",
                                threads, line, most));
    }
}
