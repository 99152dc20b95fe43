/* Cooperative groups of a block and of warps, mbarriers, cuda::barrier, and pipelines of
 * asynchronous copies, for plain kernels on the CPU device. Included after plain_device.h. */
#ifndef SGEMM_PLAIN_GROUPS_H
#define SGEMM_PLAIN_GROUPS_H

#include <cstddef>
#include <utility>

/* ------------------------------------------------------------------ asynchronous copies */

#define __pipeline_memcpy_async(to, from, bytes, ...)                                              \
    plain_copy_async(to, from, static_cast<int>(bytes), __LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __pipeline_commit() grid_copy_commit()
#define __pipeline_wait_prior(left) grid_copy_wait(left)

/* The last `zeros` bytes are not read: they become zeros. */
COPY_FUNCTION void plain_copy_async(void *to, const void *from, int bytes, int line,
                                    size_t zeros = 0)
{
    if (bytes != 4 && bytes != 8 && bytes != 16) {
        plain_fail("an asynchronous copy moves 4, 8 or 16 bytes", line);
    }
    if (zeros != 0 && zeros != static_cast<size_t>(bytes)) {
        plain_fail(
            "on the CPU device, an asynchronous copy fills all its bytes with zeros, or none",
            line);
    }
    grid_copy_async(to, zeros == 0 ? from : nullptr, bytes, line);
}

/* The bytes of a copy by `threads` threads: each copies pieces of the largest size that fits. */
COPY_FUNCTION void plain_copy_share(void *to, const void *from, size_t bytes, unsigned rank,
                                    unsigned threads, int line)
{
    const auto places = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes;
    const int piece = places % 16 == 0 ? 16 : places % 8 == 0 ? 8 : 4;
    if (places % 4 != 0) {
        plain_fail("memcpy_async copies multiples of 4 bytes on the CPU device", line);
    }
    for (size_t at = rank * static_cast<unsigned>(piece); at < bytes;
         at += threads * static_cast<unsigned>(piece)) {
        grid_copy_async(static_cast<char *>(to) + at, static_cast<const char *>(from) + at, piece,
                        line);
    }
}

/* ------------------------------------------------------------------ cuda_awbarrier_primitives.h */

typedef uint64_t __mbarrier_t;
typedef int __mbarrier_token_t; /* the parity of a phase */

#define __mbarrier_init(barrier, count)                                                            \
    grid_mbarrier_init(barrier, static_cast<int>(count), __LINE__)
#define __mbarrier_inval(barrier) static_cast<void>(barrier)
#define __mbarrier_arrive(barrier) plain_mbarrier_arrive(barrier, __LINE__)
#define __mbarrier_test_wait(barrier, token) plain_mbarrier_wait(barrier, token, __LINE__)
#define __mbarrier_try_wait(barrier, token, ...) plain_mbarrier_wait(barrier, token, __LINE__)
#define __mbarrier_test_wait_parity(barrier, parity) plain_mbarrier_wait(barrier, parity, __LINE__)
#define __mbarrier_try_wait_parity(barrier, parity, ...)                                           \
    plain_mbarrier_wait(barrier, parity, __LINE__)
#define __pipeline_arrive_on(barrier) (plain_arrives_on[plain_rank_in_block()] = (barrier))

/* By thread: the barrier at which its next arrival waits for its copies. */
static __thread const uint64_t *plain_arrives_on[1024];

static inline unsigned plain_rank_in_block()
{
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}

COPY_FUNCTION __mbarrier_token_t plain_mbarrier_arrive(uint64_t *barrier, int line)
{
    const int parity = grid_mbarrier_parity(barrier, line);
    const uint64_t *&arrives_on = plain_arrives_on[plain_rank_in_block()];
    if (arrives_on == barrier) {
        arrives_on = nullptr;
        grid_copy_arrive(barrier, line);
    } else {
        grid_mbarrier_arrive(barrier, line);
    }
    return parity;
}

/* Waits for the phase, since a kernel tests in a loop until the phase is complete. */
COPY_FUNCTION bool plain_mbarrier_wait(uint64_t *barrier, int parity, int line)
{
    grid_mbarrier_wait(barrier, parity, line);
    return true;
}

/* ------------------------------------------------------------------ cuda:: */

namespace cuda {

enum thread_scope {
    thread_scope_system,
    thread_scope_device,
    thread_scope_block,
    thread_scope_thread
};

template <size_t ALIGNMENT> struct aligned_size_t {
    size_t value;
    explicit aligned_size_t(size_t bytes) : value(bytes) {}
    operator size_t() const
    {
        return value;
    }
};

template <thread_scope SCOPE> class barrier {
  public:
    typedef int arrival_token;
    barrier() = default;
    friend void init(barrier *self, ptrdiff_t count, int line = __builtin_LINE())
    {
        grid_mbarrier_init(&self->state_, static_cast<int>(count), line);
    }
    arrival_token arrive(ptrdiff_t count = 1, int line = __builtin_LINE())
    {
        const int parity = grid_mbarrier_parity(&state_, line);
        for (ptrdiff_t each = 0; each < count; ++each) {
            grid_mbarrier_arrive(&state_, line);
        }
        return parity;
    }
    void wait(arrival_token token, int line = __builtin_LINE()) const
    {
        grid_mbarrier_wait(const_cast<uint64_t *>(&state_), token, line);
    }
    void wait_parity(bool parity, int line = __builtin_LINE()) const
    {
        grid_mbarrier_wait(const_cast<uint64_t *>(&state_), parity, line);
    }
    void arrive_and_wait(int line = __builtin_LINE())
    {
        wait(arrive(1, line), line);
    }
    uint64_t *plain_state()
    {
        return &state_;
    }

  private:
    alignas(8) uint64_t state_;
};

/* A copy that the barrier's current phase waits for. It is done when it is started; other threads
 * are ordered after it by the barrier. */
template <class T, class Size, thread_scope SCOPE>
COPY_FUNCTION void memcpy_async(T *to, const T *from, Size bytes, barrier<SCOPE> &bar,
                                int line = __builtin_LINE())
{
    plain_copy_share(to, from, static_cast<size_t>(bytes), 0, 1, line);
    grid_copy_commit();
    grid_copy_wait(0);
    (void)bar;
}
template <class Group, class T, class Size, thread_scope SCOPE>
COPY_FUNCTION void memcpy_async(const Group &group, T *to, const T *from, Size bytes,
                                barrier<SCOPE> &bar, int line = __builtin_LINE())
{
    plain_copy_share(to, from, static_cast<size_t>(bytes),
                     static_cast<unsigned>(group.thread_rank()),
                     static_cast<unsigned>(group.size()), line);
    grid_copy_commit();
    grid_copy_wait(0);
    (void)bar;
}

/* A pipeline of one thread, or of a block whose threads all produce and consume. */
template <thread_scope SCOPE> class pipeline {
  public:
    void producer_acquire() {}
    void producer_commit()
    {
        grid_copy_commit();
        ++committed_;
    }
    void consumer_wait(int line = __builtin_LINE())
    {
        wait_prior(committed_ - waited_ - 1, line);
    }
    void consumer_release(int line = __builtin_LINE())
    {
        if (SCOPE == thread_scope_block) {
            grid_barrier(line);
        }
    }
    void wait_prior(unsigned left, int line)
    {
        grid_copy_wait(static_cast<int>(left));
        waited_ = committed_ - left;
        if (SCOPE == thread_scope_block) {
            grid_barrier(line);
        }
    }

  private:
    unsigned committed_ = 0, waited_ = 0;
};

template <unsigned LEFT, thread_scope SCOPE>
static inline void pipeline_consumer_wait_prior(pipeline<SCOPE> &pipe, int line = __builtin_LINE())
{
    pipe.wait_prior(LEFT, line);
}

template <thread_scope SCOPE, int STAGES> struct pipeline_shared_state {};

template <class Group, thread_scope SCOPE, int STAGES>
static inline pipeline<SCOPE> make_pipeline(const Group &, pipeline_shared_state<SCOPE, STAGES> *)
{
    return {};
}

static inline pipeline<thread_scope_thread> make_pipeline()
{
    return {};
}

template <class T, class Size, thread_scope SCOPE>
COPY_FUNCTION void memcpy_async(T *to, const T *from, Size bytes, pipeline<SCOPE> &,
                                int line = __builtin_LINE())
{
    plain_copy_share(to, from, static_cast<size_t>(bytes), 0, 1, line);
}
template <class Group, class T, class Size, thread_scope SCOPE>
COPY_FUNCTION void memcpy_async(const Group &group, T *to, const T *from, Size bytes,
                                pipeline<SCOPE> &, int line = __builtin_LINE())
{
    plain_copy_share(to, from, static_cast<size_t>(bytes),
                     static_cast<unsigned>(group.thread_rank()),
                     static_cast<unsigned>(group.size()), line);
}

} // namespace cuda

/* ------------------------------------------------------------------ cooperative_groups:: */

namespace cooperative_groups {

class thread_block {
  public:
    static void sync(int line = __builtin_LINE())
    {
        grid_barrier(line);
    }
    static unsigned thread_rank()
    {
        return plain_rank_in_block();
    }
    static unsigned size()
    {
        return blockDim.x * blockDim.y * blockDim.z;
    }
    static unsigned num_threads()
    {
        return size();
    }
    static uint3 thread_index()
    {
        return threadIdx;
    }
    static uint3 group_index()
    {
        return blockIdx;
    }
    static dim3 group_dim()
    {
        return blockDim;
    }
    static dim3 dim_threads()
    {
        return blockDim;
    }
};
typedef thread_block thread_group;

static inline thread_block this_thread_block()
{
    return {};
}

/* Its barrier needs blocks that run at the same time. */
class grid_group {
  public:
    static void sync(int line = __builtin_LINE())
    {
        if (gridDim.x * gridDim.y * gridDim.z > 1) {
            plain_fail("grid.sync() needs a cooperative launch, which the CPU device lacks: split "
                       "the kernel's work so that no block waits for another, for example with "
                       "atomicAdd",
                       line);
        }
        grid_barrier(line);
    }
    static unsigned long long size()
    {
        return 1ull * gridDim.x * gridDim.y * gridDim.z * thread_block::size();
    }
    static unsigned long long num_threads()
    {
        return size();
    }
    static unsigned long long thread_rank()
    {
        const unsigned long long block =
            (1ull * blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        return block * thread_block::size() + thread_block::thread_rank();
    }
    static unsigned long long block_rank()
    {
        return (1ull * blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    }
    static uint3 block_index()
    {
        return blockIdx;
    }
    static dim3 group_dim()
    {
        return gridDim;
    }
};

static inline grid_group this_grid()
{
    return {};
}

/* SIZE neighbouring threads of a warp. */
template <unsigned SIZE, class Parent = thread_block> class thread_block_tile {
    static_assert(SIZE >= 1 && SIZE <= 32 && (SIZE & (SIZE - 1)) == 0,
                  "the CPU device has tiles of 1, 2, 4, 8, 16 or 32 threads");

  public:
    static unsigned mask()
    {
        const unsigned ones = SIZE == 32 ? 0xffffffffu : (1u << SIZE % 32) - 1u;
        return ones << static_cast<unsigned>(grid_lane()) / SIZE * SIZE;
    }
    static void sync(int line = __builtin_LINE())
    {
        plain_warp_barrier(mask(), line);
    }
    static unsigned thread_rank()
    {
        return static_cast<unsigned>(grid_lane()) % SIZE;
    }
    static constexpr unsigned size()
    {
        return SIZE;
    }
    static constexpr unsigned num_threads()
    {
        return SIZE;
    }
    static unsigned meta_group_rank()
    {
        return thread_block::thread_rank() / SIZE;
    }
    static unsigned meta_group_size()
    {
        return (thread_block::size() + SIZE - 1) / SIZE;
    }
    template <class T> T shfl(T value, int rank, int line = __builtin_LINE()) const
    {
        return __shfl_sync(mask(), value, rank, static_cast<int>(SIZE), line);
    }
    template <class T> T shfl_up(T value, unsigned ranks, int line = __builtin_LINE()) const
    {
        return __shfl_up_sync(mask(), value, ranks, static_cast<int>(SIZE), line);
    }
    template <class T> T shfl_down(T value, unsigned ranks, int line = __builtin_LINE()) const
    {
        return __shfl_down_sync(mask(), value, ranks, static_cast<int>(SIZE), line);
    }
    template <class T> T shfl_xor(T value, int bits, int line = __builtin_LINE()) const
    {
        return __shfl_xor_sync(mask(), value, bits, static_cast<int>(SIZE), line);
    }
    int any(int predicate, int line = __builtin_LINE()) const
    {
        return __any_sync(mask(), predicate, line);
    }
    int all(int predicate, int line = __builtin_LINE()) const
    {
        return __all_sync(mask(), predicate, line);
    }
    unsigned ballot(int predicate, int line = __builtin_LINE()) const
    {
        return __ballot_sync(mask(), predicate, line) >>
               static_cast<unsigned>(grid_lane()) / SIZE * SIZE;
    }
};

template <unsigned SIZE, class Parent>
static inline thread_block_tile<SIZE, Parent> tiled_partition(const Parent &)
{
    return {};
}

template <class T> struct plus {
    T operator()(T a, T b) const
    {
        return a + b;
    }
};
template <class T> struct less {
    T operator()(T a, T b) const
    {
        return b < a ? b : a;
    }
};
template <class T> struct greater {
    T operator()(T a, T b) const
    {
        return a < b ? b : a;
    }
};

template <unsigned SIZE, class Parent, class T, class Operation>
static inline T reduce(const thread_block_tile<SIZE, Parent> &tile, T value,
                       const Operation &operation, int line = __builtin_LINE())
{
    for (int bits = static_cast<int>(SIZE) / 2; bits > 0; bits /= 2) {
        value = operation(value, tile.shfl_xor(value, bits, line));
    }
    return value;
}

template <class Group> static inline void sync(const Group &group, int line = __builtin_LINE())
{
    group.sync(line);
}

template <class Group, class T, class Size>
COPY_FUNCTION void memcpy_async(const Group &group, T *to, const T *from, Size bytes,
                                int line = __builtin_LINE())
{
    plain_copy_share(to, from, static_cast<size_t>(bytes),
                     static_cast<unsigned>(group.thread_rank()),
                     static_cast<unsigned>(group.size()), line);
    grid_copy_commit();
}
template <class Group> static inline void wait(const Group &group, int line = __builtin_LINE())
{
    grid_copy_wait(0);
    group.sync(line);
}
template <unsigned LEFT, class Group>
static inline void wait_prior(const Group &group, int line = __builtin_LINE())
{
    grid_copy_wait(static_cast<int>(LEFT));
    group.sync(line);
}

} // namespace cooperative_groups

#endif
