# make checkers      one planted bug for each checker, and the copies; a minute
# make asan          the rungs on the CPU device under AddressSanitizer and
#                    UndefinedBehaviorSanitizer
# make tsan          the same under ThreadSanitizer, which treats each CUDA thread as a thread
#                    (both also check the host's copies and worker threads; tsan also checks the
#                    threads of a call on several GPUs)
# make poison        the same with uninitialized memory filled with NaN, with threads and blocks
#                    started in 20 orders, with stores visible to other blocks as late as fences
#                    allow, and with offsets beyond 2^31
# make gpu-sanitize  on this machine's GPU: plain, and under each tool of compute-sanitizer
# make gpu-driver    the programs that gpu-sanitize runs. They can be built on another machine, with
#                    NVCC_ARCH=sm_90 for an H100: copy driver, tensor_cores, hopper, small_batch,
#                    grouped, sixteen_bit and key in build/check/gpu
#
# driver.cpp checks every rung, workers.c the copies, team.c the threads of a call on several GPUs,
# tensor_cores.cu the bits of tensor cores, hopper.cu the instructions for warpgroups and clusters,
# small_batch.cu the kernels for batches of small products, grouped.cu the one for products of
# different shapes, sixteen_bit.cu those for operands of 16 bits, auto_16bit.cu the choice among
# these when memory is short.
# planted.cu, workers.c, team.c and hopper.cu contain bugs, plant.py puts some into three rungs,
# and each checker must find its own. Those targets need g++: clang 14's ThreadSanitizer
# misses races in large blocks.

ifeq ($(origin CXX),default)
CXX := c++
endif

# The generated launchers of the ladder's rungs, which contain the rungs.
RUNGS := $(patsubst csrc/%,build/%,$(wildcard csrc/ladder/*.cu))
$(RUNGS) build/ladder/names.h &: $(wildcard csrc/ladder/*) build_backend/rungs.py \
		sgemm_kernels/custom/plain_text.py
	$(PYTHON) -m build_backend.rungs
	touch $(RUNGS) build/ladder/names.h

CHECK_SOURCES := $(wildcard csrc/base/*.c csrc/runtime/*.c csrc/frontends/c/*.c \
	csrc/gemm/plan/*.c csrc/runtime/cpu/*.cpp csrc/emulator/*.cpp csrc/emulator/plain/*.cpp csrc/gemm/*.cu \
	csrc/gemm/*/*.cu) $(RUNGS) tests/native/driver.cpp tests/native/planted.cu \
	tests/native/tilings.cu tests/native/shallow.cu

.PHONY: checkers checkers-asan checkers-tsan checkers-poison asan tsan poison poison-orders poison-bugs gpu-driver gpu-sanitize gpu-sanitize-clusters

# ------------------------------------------------------------------------------- how to compile

# For each checker: flags of all objects, flags of kernels, and the link command. Only kernels are
# instrumented: the CPU device switches stacks and informs the sanitizers itself.
asan_all := -DSGEMM_CHECKED -DSGEMM_ASAN
tsan_all := -DSGEMM_CHECKED -DSGEMM_TSAN
poison_all := -DSGEMM_CHECKED
gpu_all := -DSGEMM_CUDA=1

# With -O2, these two sanitizers take twice as long to compile auto.cu, and longer than the runs.
asan_level := -g1 -O1
tsan_level := -g1 -O1
poison_level := -g -O2
gpu_level := -g -O2

# Checking builds put shared arrays in this section.
asan_kernels := -fsanitize=address,undefined -fno-sanitize-recover=all \
	-fsanitize-sections=sgemm_shared
tsan_kernels := -fsanitize=thread
# An offset that overflows must wrap around, as on a GPU.
poison_kernels := -fwrapv

asan_link = $(CXX) $(asan_kernels) -pthread
tsan_link = $(CXX) $(tsan_kernels) -pthread
poison_link = $(CXX) -pthread
gpu_link = $(NVCC) -ccbin $(CXX) -Xcompiler=-pthread,-static-libstdc++,-static-libgcc

# Programs with the kernels of one file.
SMALL_BATCH_SOURCES := $(addprefix csrc/gemm/plan/,small_batch_plan.c plan.c plan_constants.c)
SINGLE_FILE := tensor_cores hopper small_batch grouped sixteen_bit
DEVICE_SOURCES := csrc/base/status.c csrc/base/threads.c csrc/base/undisturbed.c \
	$(SMALL_BATCH_SOURCES) $(wildcard csrc/emulator/*.cpp)
AUTO_16BIT_SOURCES := tests/native/auto_16bit.cu $(DEVICE_SOURCES) csrc/base/variant.c \
	$(filter-out $(SMALL_BATCH_SOURCES),$(wildcard csrc/gemm/plan/*.c))
asan_alone := $(DEVICE_SOURCES)
tsan_alone := $(DEVICE_SOURCES)
poison_alone := $(DEVICE_SOURCES)
gpu_alone := csrc/base/status.c $(SMALL_BATCH_SOURCES)
gpu_alone_nvcc := $(patsubst %,build/check/gpu/nvcc/csrc/base/cuda/%.cu.o,failures allocator)
asan_kernels_of := build/check/asan
tsan_kernels_of := build/check/tsan
poison_kernels_of := build/check/poison
gpu_kernels_of := build/check/gpu/nvcc

# $(1): the checker
define CHECKER
$(1)_objects := $(CHECK_SOURCES:%=build/check/$(1)/%.o)
$(1)_flags = $$($(1)_level) -MMD -MP -Wall -Wextra -Werror -DSGEMM_BUILD='"checks"' $($(1)_all)

build/check/$(1)/driver: $$($(1)_objects)
	$$($(1)_link) $$^ -o $$@ -ldl

$(SINGLE_FILE:%=build/check/$(1)/%): build/check/$(1)/%: $$($(1)_alone:%=build/check/$(1)/%.o) \
		$$($(1)_kernels_of)/tests/native/%.cu.o $$($(1)_alone_nvcc)
	$$($(1)_link) $$^ -o $$@

build/check/$(1)/auto_16bit: $$(AUTO_16BIT_SOURCES:%=build/check/$(1)/%.o)
	$$($(1)_link) $$^ -o $$@

build/check/$(1)/%.cu.o: %.cu tests/native/checks.mk | build/check/$(1)/compiler
	@mkdir -p $$(@D)
	$$(CXX) -x c++ -std=c++20 -Icsrc/gemm/tensor_cores $$($(1)_flags) $$($(1)_kernels) -c $$< -o $$@

build/check/$(1)/build/ladder/%.cu.o build/check/$(1)/build/planted/%.cu.o: $(1)_kernels += -fno-strict-aliasing -Wno-unused \
	-Wno-sign-compare -Wno-unknown-pragmas -Wno-attributes

build/check/$(1)/%.cpp.o: %.cpp tests/native/checks.mk | build/check/$(1)/compiler
	@mkdir -p $$(@D)
	$$(CXX) -std=c++20 $$($(1)_flags) -O3 -c $$< -o $$@

build/check/$(1)/%.c.o: %.c tests/native/checks.mk | build/check/$(1)/compiler build/ladder/names.h
	@mkdir -p $$(@D)
	$$(CC) -std=c11 $$($(1)_flags) -c $$< -o $$@

-include $$($(1)_objects:.o=.d) $(SINGLE_FILE:%=build/check/$(1)/tests/native/%.cu.d) \
	build/check/$(1)/tests/native/auto_16bit.cu.d
endef
$(foreach checker,asan tsan poison gpu,$(eval $(call CHECKER,$(checker))))

# The driver with a bug in a rung, whose name the bug's begins with: see plant.py.
BUGS := $(shell sed -n 's/^    "\([a-z0-9]*_[a-z_]*\)": {.*/\1/p' tests/native/plant.py)
FUSED_BUGS := $(filter fused_%,$(BUGS))
LADDER_BUGS := $(filter-out fused_%,$(BUGS))
.PRECIOUS: build/planted/%.cu
$(FUSED_BUGS:%=build/planted/%.cu): $(addprefix csrc/gemm/tensor_cores/, \
		fused.cu fused_launch.h fused_tiles.h fused_slices.h split_in_registers.h)
$(LADDER_BUGS:%=build/planted/%.cu): $(RUNGS)
build/planted/%.cu: tests/native/plant.py
	@mkdir -p $(@D)
	$(PYTHON) $< $* > $@

# $(1): the checker, $(2): the bug, $(3): the rung's own object, which this one replaces
define PLANTED
build/check/$(1)/$(2): build/check/$(1)/build/planted/$(2).cu.o $(filter-out $(3),$($(1)_objects))
	$$($(1)_link) $$^ -o $$@ -ldl
-include build/check/$(1)/build/planted/$(2).cu.d
endef
$(foreach bug,$(FUSED_BUGS),$(eval $(call PLANTED,poison,$(bug),%/fused.cu.o)))
$(foreach checker,asan tsan poison,$(foreach bug,$(LADDER_BUGS),$(eval $(call \
	PLANTED,$(checker),$(bug),build/check/$(checker)/build/ladder/%_$(firstword $(subst _, ,$(bug))).cu.o))))

# Compiled in half the time, and run on a few shapes only.
$(FUSED_BUGS:%=build/check/poison/build/planted/%.cu.o): poison_level := -g1 -O1

# Instrumented as a whole; without kernels it needs no flags for shared arrays.
build/check/%/workers: tests/native/workers.c csrc/runtime/workers.c csrc/runtime/strided.c \
		csrc/base/threads.c csrc/base/undisturbed.c csrc/base/status.c \
		$(wildcard csrc/base/*.h csrc/runtime/*.h) tests/native/checks.mk | build/check/%/compiler
	$(CC) -std=c11 -g -O2 -Wall -Wextra -Werror $(filter-out -fsanitize-sections=%,$($*_kernels)) \
		$(filter %.c,$^) -pthread -o $@

build/check/%/team: tests/native/team.c csrc/runtime/team.c csrc/base/status.c \
		$(wildcard csrc/base/*.h csrc/runtime/*.h) tests/native/checks.mk | build/check/%/compiler
	$(CC) -std=c11 -g -O2 -Wall -Wextra -Werror $(filter-out -fsanitize-sections=%,$($*_kernels)) \
		$(filter %.c,$^) -pthread -o $@

# An empty program shows whether the compiler and its sanitizer work here.
.PRECIOUS: build/check/%/compiler
build/check/%/compiler:
	@mkdir -p $(@D)
	@echo 'int main() {}' | $(CXX) -x c++ - $($*_kernels) -o $@ || { \
		echo "make $*: '$(CXX)' with $($*_kernels) does not work here. It takes g++ and its" \
		"sanitizers' runtimes: apt install g++ (Debian, Ubuntu)," \
		"dnf install gcc-c++ libasan libubsan libtsan (Fedora)"; \
		exit 1; }

# -------------------------------------------------------------------------------- on the CPU device

MUST_FIND := tests/native/must_find.sh

# For each checker, instructions for warpgroups and clusters that are right, and a bug.
checkers: checkers-asan checkers-tsan checkers-poison

checkers-asan: HOPPER := build/check/asan/hopper
checkers-asan: WORKERS := build/check/asan/workers
checkers-asan: build/check/asan/hopper build/check/asan/workers
	$(HOPPER)
	@$(MUST_FIND) 'heap-buffer-overflow.*hopper\.cu' $(HOPPER) --planted part_overread
	$(WORKERS)
	@$(MUST_FIND) 'heap-use-after-free.*csrc/runtime/workers\.c' $(WORKERS) --planted gone

checkers-tsan: HOPPER = $(IN_PLACE) build/check/tsan/hopper --planted
checkers-tsan: TEAM = $(IN_PLACE) build/check/tsan/team
checkers-tsan: build/check/tsan/hopper build/check/tsan/team
	$(HOPPER) cluster_none
	@$(MUST_FIND) 'data race.*hopper\.cu' $(HOPPER) no_cluster_barrier_before_reading
	$(TEAM)
	@$(MUST_FIND) 'data race.*team\.c' $(TEAM) --planted early

checkers-poison: HOPPER := build/check/poison/hopper
checkers-poison: build/check/poison/hopper
	$(HOPPER)
	@$(MUST_FIND) 'product reads shared memory to which the copy of' $(HOPPER) --planted no_wait
	@$(MUST_FIND) 'ordinary: ffffffff' $(HOPPER) --planted accumulators_unwaited

asan: WORKERS := build/check/asan/workers
asan: HOPPER := build/check/asan/hopper --planted
asan: build/check/asan/driver build/check/asan/workers $(SINGLE_FILE:%=build/check/asan/%) \
		build/check/asan/auto_16bit \
		build/check/asan/tile2d_overread build/check/asan/async_overread
	$< cpu edges big
	$< cpu --planted none edges big
	$< cpu --planted warp_none edges
	$< cpu --planted dynamic_none edges big
	$< cpu --planted exchange_none edges
	@$(MUST_FIND) 'global-buffer-overflow.*planted\.cu' $< cpu --planted shared_overread few
	@$(MUST_FIND) 'heap-buffer-overflow.*planted\.cu' $< cpu \
		--planted dynamic_shared_overread few
	@$(MUST_FIND) 'use-after-poison.* READ of .*planted\.cu' $< cpu --planted global_overread few
	@$(MUST_FIND) 'use-after-poison.* WRITE of .*planted\.cu' $< cpu --planted global_overwrite few
	@$(MUST_FIND) 'planted\.cu.*misaligned address' $< cpu --planted misaligned_float4 few
	@$(MUST_FIND) 'tensor_cores\.h.*misaligned address' $< cpu --planted misaligned_row few
	@$(MUST_FIND) 'planted\.cu.*signed integer overflow' $< cpu --planted offset_overflow big
	@$(MUST_FIND) 'global-buffer-overflow.*05_tile2d\.cu' build/check/asan/tile2d_overread cpu \
		--rung tile2d few
	@$(MUST_FIND) 'heap-buffer-overflow.*09_async\.cu' build/check/asan/async_overread cpu \
		--rung async few
	build/check/asan/tensor_cores
	build/check/asan/hopper
	build/check/asan/small_batch 300
	build/check/asan/grouped 40
	build/check/asan/sixteen_bit 42
	build/check/asan/auto_16bit
	@$(MUST_FIND) 'heap-buffer-overflow.*hopper\.cu' $(HOPPER) part_overread
	$(WORKERS)
	@$(MUST_FIND) 'heap-use-after-free.*csrc/runtime/workers\.c' $(WORKERS) --planted gone

# Disables address randomization if the system permits: with it, some ThreadSanitizers do not start.
tsan checkers-tsan: export TSAN_OPTIONS := halt_on_error=1
tsan checkers-tsan: IN_PLACE = $(shell setarch -R true 2> /dev/null && echo setarch -R)
tsan: DRIVER = $(IN_PLACE) $<
tsan: WORKERS = $(IN_PLACE) build/check/tsan/workers
tsan: HOPPER = $(IN_PLACE) build/check/tsan/hopper --planted
tsan: BOTH_LINES := 'race.*Read .*planted\.cu:.*Previous write .*planted\.cu:'
tsan: TEAM = $(IN_PLACE) build/check/tsan/team
tsan: SMALL_BATCH = $(IN_PLACE) build/check/tsan/small_batch
tsan: GROUPED = $(IN_PLACE) build/check/tsan/grouped
tsan: build/check/tsan/driver build/check/tsan/workers build/check/tsan/team \
		build/check/tsan/hopper build/check/tsan/small_batch build/check/tsan/grouped \
		build/check/tsan/tile2d_no_barrier build/check/tsan/async_no_wait
	$(DRIVER) cpu few
	$(SMALL_BATCH) 60
	$(GROUPED) 12
	$(DRIVER) cpu --planted none few
	$(DRIVER) cpu --planted dynamic_none few
	$(DRIVER) cpu --planted warp_none few
	$(DRIVER) cpu --planted exchange_none few
	@$(MUST_FIND) 'data race.*planted\.cu' $(DRIVER) cpu --planted no_barrier_after_load few
	@$(MUST_FIND) 'data race.*planted\.cu' $(DRIVER) cpu --planted no_barrier_before_reuse few
	@$(MUST_FIND) 'data race.*planted\.cu' $(DRIVER) cpu \
		--planted dynamic_no_barrier_after_load few
	@$(MUST_FIND) 'data race.*planted\.cu' $(DRIVER) cpu \
		--planted dynamic_no_barrier_before_reuse few
	@$(MUST_FIND) 'data race.*planted\.cu' $(DRIVER) cpu --planted no_warp_barrier_before_load few
	@$(MUST_FIND) 'data race.*planted\.cu' $(DRIVER) cpu --planted no_warp_barrier_after_store few
	@$(MUST_FIND) $(BOTH_LINES) $(DRIVER) cpu --planted no_fence_before_arrival few
	@$(MUST_FIND) $(BOTH_LINES) $(DRIVER) cpu --planted no_fence_after_arrival few
	@$(MUST_FIND) $(BOTH_LINES) $(DRIVER) cpu --planted stored_after_arrival few
	@$(MUST_FIND) 'data race.*05_tile2d\.cu' $(IN_PLACE) build/check/tsan/tile2d_no_barrier cpu \
		--rung tile2d few
	@$(MUST_FIND) 'data race.*09_async\.cu' $(IN_PLACE) build/check/tsan/async_no_wait cpu \
		--rung async few
	$(HOPPER) cluster_none
	@$(MUST_FIND) 'data race.*hopper\.cu' $(HOPPER) no_cluster_barrier_before_reading
	@$(MUST_FIND) 'data race.*hopper\.cu' $(HOPPER) block_barrier_before_reading
	$(WORKERS)
	@$(MUST_FIND) 'data race.*csrc/runtime/strided\.c' $(WORKERS) --planted early
	$(TEAM)
	@$(MUST_FIND) 'data race.*team\.c' $(TEAM) --planted early
	@$(MUST_FIND) 'data race.*team\.c' $(TEAM) --planted over

# The orders take most of the time: on a second core if there is one.
poison: poison-orders poison-bugs

poison-orders: build/check/poison/driver
	$< cpu orders

poison-bugs: HOPPER := build/check/poison/hopper --planted
poison-bugs: build/check/poison/driver $(SINGLE_FILE:%=build/check/poison/%) \
		$(FUSED_BUGS:%=build/check/poison/%) build/check/poison/tile2d_no_barrier \
		build/check/poison/tile2d_unset_edge build/check/poison/async_no_wait
	$< cpu edges big
	$< cpu --planted none edges orders big
	$< cpu --planted dynamic_none edges orders big
	$< cpu --planted warp_none edges orders
	$< cpu --planted exchange_none edges orders
	@$(MUST_FIND) 'is -?nan' $< cpu --planted unset_edge edges
	@$(MUST_FIND) 'is -?nan' $< cpu --planted dynamic_unset_edge edges
	@$(MUST_FIND) 'is -?nan' $< cpu --planted global_overread few
	@$(MUST_FIND) 'is -?nan' $< cpu --planted reads_C few
	@$(MUST_FIND) 'around C was changed' $< cpu --planted global_overwrite few
	@$(MUST_FIND) 'input was changed' $< cpu --planted input_overwrite few
	@$(MUST_FIND) 'other bits with the threads' $< cpu --planted no_barrier_after_load orders
	@$(MUST_FIND) 'other bits with the threads' $< cpu --planted no_barrier_before_reuse orders
	@$(MUST_FIND) 'waits at line [0-9]+, thread' $< cpu --planted divergent_barrier few
	@$(MUST_FIND) 'returned while thread' $< cpu --planted early_return few
	@$(MUST_FIND) 'is -?nan' $< cpu --planted no_warp_barrier_before_load few
	@$(MUST_FIND) 'is -?nan' $< cpu --planted no_warp_barrier_after_store few
	@$(MUST_FIND) 'whole warp: thread 17 waits at line [0-9]+ while thread 16 waits' $< cpu \
		--planted left_out_of_warp few
	@$(MUST_FIND) 'whole warp: thread 17 returned while thread' $< cpu --planted left_warp few
	@$(MUST_FIND) 'wrong value' $< cpu --planted no_fence_before_arrival few
	@$(MUST_FIND) 'wrong value' $< cpu --planted no_fence_after_arrival few
	@$(MUST_FIND) 'wrong value' $< cpu --planted stored_after_arrival few
	@$(MUST_FIND) 'wrong value' $< cpu --planted counter_left few
	@$(MUST_FIND) 'other bits with the threads and blocks' $< cpu --planted added_by_arrival orders
	build/check/poison/tensor_cores
	build/check/poison/hopper
	build/check/poison/small_batch 1000
	build/check/poison/grouped 100
	build/check/poison/sixteen_bit 105
	$(HOPPER) none
	$(HOPPER) copies_none
	@$(MUST_FIND) 'product reads shared memory to which the copy of' $(HOPPER) no_wait
	@$(MUST_FIND) 'product reads shared memory to which the copy of' $(HOPPER) wrong_stage
	@$(MUST_FIND) 'wait at line [0-9]+ for an mbarrier' $(HOPPER) wrong_parity
	@$(MUST_FIND) 'memory to which the copy of line [0-9]+ is still in flight' $(HOPPER) filled_unasked
	@$(MUST_FIND) 'memory that the product of line [0-9]+ may still' $(HOPPER) released_early
	@$(MUST_FIND) 'ordinary: ffffffff' $(HOPPER) accumulators_unwaited
	@$(MUST_FIND) 'wrote to the accumulators' $(HOPPER) accumulators_set
	@$(MUST_FIND) 'no wgmma.fence followed' $(HOPPER) no_products_fence
	@$(MUST_FIND) 'first thread and its thread 77' $(HOPPER) other_factors
	@$(MUST_FIND) 'whole warpgroup: thread 205 waits at' $(HOPPER) left_out_of_warpgroup
	@$(MUST_FIND) 'at a multiple of 16 bytes of a tensor' $(HOPPER) between_chunks
	@$(MUST_FIND) 'for an mbarrier, which lacks 0 arrivals and 16 bytes' $(HOPPER) bytes_never_come
	@$(MUST_FIND) 'thread 0 waits .* lacks 1 arrivals and 0 bytes' $(HOPPER) never_released
	@$(MUST_FIND) 'ordinary: 7fffffff' $(HOPPER) no_proxy_fence
	@$(MUST_FIND) 'ordinary: 7fffffff' $(HOPPER) copies_read_early
	@$(MUST_FIND) 'no thread waited for the copy' $(HOPPER) copies_too_few
	$(HOPPER) cluster_none
	@$(MUST_FIND) 'ordinary: ffffffff' $(HOPPER) no_cluster_barrier_before_reading
	@$(MUST_FIND) 'ordinary: ffffffff' $(HOPPER) block_barrier_before_reading
	@$(MUST_FIND) 'block [0-9]+ of its cluster, which may have ended: thread [0-9]+ of block' \
		$(HOPPER) no_cluster_barrier_before_end
	@$(MUST_FIND) 'ordinary: ffffffff' $(HOPPER) ended_before_kept_address
	@$(MUST_FIND) 'whole cluster: thread 33 of block 2 returned while thread 32 of block 2 waits' \
		$(HOPPER) left_cluster
	@$(MUST_FIND) 'whole cluster: thread 0 of block 3 waits at line [0-9]+, thread [0-9]+ of block [0-2]' \
		$(HOPPER) other_cluster_barrier
	@$(MUST_FIND) 'of blocks 0 to 3 can go on: .*; thread 32 of block 1 to thread 63 of block 1' \
		$(HOPPER) block_barrier_of_some
	@$(MUST_FIND) 'shared memory of block 4 of its cluster, which has 4' $(HOPPER) part_of_nobody
	@$(MUST_FIND) "not in its own block's dynamic shared" $(HOPPER) part_not_shared
	@$(MUST_FIND) 'wrong value: C\[46400' $< cpu --planted offset_overflow big
	@$(MUST_FIND) 'wrong value' build/check/poison/fused_other_scale cpu --rung fused few
	@$(MUST_FIND) 'wrong value' build/check/poison/fused_half_of_row cpu --rung fused few
	@$(MUST_FIND) 'wrong value' build/check/poison/fused_order_of_k cpu --rung fused few
	@$(MUST_FIND) 'wrong value' build/check/poison/fused_place_of_row cpu --rung fused few
	@$(MUST_FIND) 'waits? at line [0-9]+ for an mbarrier' build/check/poison/fused_no_wait cpu \
		--rung fused few
	@$(MUST_FIND) 'other bits with the threads and blocks' \
		build/check/poison/fused_order_of_slices cpu --rung fused orders
	@$(MUST_FIND) 'other bits with the threads' build/check/poison/tile2d_no_barrier cpu \
		--rung tile2d orders
	@$(MUST_FIND) 'is -?nan' build/check/poison/tile2d_unset_edge cpu --rung tile2d edges
	@$(MUST_FIND) 'no thread waited for the copy' build/check/poison/async_no_wait cpu \
		--rung async few
	@{ $< --list; build/check/poison/hopper --list; printf '%s\n' $(BUGS); } | \
		while read -r bug _; do \
		grep -q -E -e "(--planted |HOPPER\) )$$bug( |$$)" -e "check/[a-z]+/$$bug cpu" \
			tests/native/checks.mk || { \
		echo "no checker looks for the planted bug '$$bug'"; exit 1; }; done

# ---------------------------------------------------------------------------------------- on a GPU

NVCC ?= $(firstword $(wildcard $(CUDA_HOME:%=%/bin/nvcc)) $(shell command -v nvcc) \
	$(wildcard /usr/local/cuda/bin/nvcc) nvcc)
NVCC_ARCH ?= native
COMPUTE_SANITIZER ?= $(firstword $(shell command -v compute-sanitizer) \
	$(wildcard $(dir $(NVCC))compute-sanitizer) compute-sanitizer)

gpu_nvcc_objects := $(patsubst %,build/check/gpu/nvcc/%.o, \
	$(filter %.cu,$(CHECK_SOURCES)) $(wildcard csrc/base/cuda/*.cu csrc/runtime/cuda/*.cu) tests/native/device_memory.cu)

build/check/gpu/driver: $(gpu_nvcc_objects)

nvcc_for = -arch=$(NVCC_ARCH)

build/check/gpu/nvcc/%.cu.o: %.cu tests/native/checks.mk
	@mkdir -p $(@D)
	$(NVCC) -ccbin $(CXX) $(nvcc_for) -std=c++20 -O3 -lineinfo -MMD -MP -Icsrc/gemm/tensor_cores \
		-Werror=all-warnings -Xcompiler=-Wall,-Wextra,-Werror -DSGEMM_CUDA=1 \
		'-DSGEMM_ARCHITECTURES="$(NVCC_ARCH)"' '-DSGEMM_TOOLKIT="unknown"' -c $< -o $@

# These instructions exist only on this architecture.
build/check/gpu/nvcc/tests/native/hopper.cu.o \
build/check/gpu/nvcc/tests/native/sixteen_bit.cu.o \
$(patsubst %,build/check/gpu/nvcc/%.o,$(shell grep -l ARCHITECTURE_SPECIFIC_VARIANT \
	csrc/gemm/*/*.cu tests/native/*.cu)): \
	nvcc_for := -gencode arch=compute_90a,code=sm_90a

-include $(gpu_nvcc_objects:.o=.d) $(SINGLE_FILE:%=build/check/gpu/nvcc/tests/native/%.cu.d)

# Compares contents, not file times, because a driver copied from another machine has new times.
gpu-driver:
	@export LC_ALL=C; sources=$$(find csrc tests/native -type f -not -name '*.pyc' | sort); \
	key=$$(cat $$sources | sha256sum); \
	if ! [ -x build/check/gpu/driver ] || ! [ -x build/check/gpu/tensor_cores ] || \
			! [ -x build/check/gpu/hopper ] || ! [ -x build/check/gpu/small_batch ] || \
			! [ -x build/check/gpu/grouped ] || ! [ -x build/check/gpu/sixteen_bit ] || \
			[ "$$key" != "$$(cat build/check/gpu/key 2> /dev/null)" ]; then \
		$(MAKE) build/check/gpu/driver $(SINGLE_FILE:%=build/check/gpu/%); \
		echo "$$key" > build/check/gpu/key; \
	fi

gpu-sanitize: DRIVER := build/check/gpu/driver
gpu-sanitize: UNDER = $(COMPUTE_SANITIZER) --error-exitcode 9 --print-limit 5 \
	--tool $(1) $(DRIVER) cuda-exact
gpu-sanitize: MEMCHECK = $(call UNDER,memcheck)
gpu-sanitize: INITCHECK = $(call UNDER,initcheck)
gpu-sanitize: RACECHECK = $(call UNDER,racecheck)
gpu-sanitize: SYNCCHECK = $(call UNDER,synccheck --num-cuda-barriers 131072)
# A thread of these rungs arrives at a barrier twice, as CUDA's primitives for asynchronous copies
# prescribe: when its copies have landed, and by itself. synccheck takes the first arrival for the
# second, and reports that the thread did not wait before the other. The other tools, and the
# checkers of the CPU device, watch them.
gpu-sanitize: PAIRED_ARRIVALS := async raster
gpu-sanitize: gpu-driver
	build/check/gpu/tensor_cores
	build/check/gpu/hopper
	build/check/gpu/small_batch 3000
	build/check/gpu/grouped 400
	build/check/gpu/sixteen_bit 2100
	$(COMPUTE_SANITIZER) --error-exitcode 9 --print-limit 5 --tool memcheck \
		build/check/gpu/grouped 24
	$(COMPUTE_SANITIZER) --error-exitcode 9 --print-limit 5 --tool memcheck \
		build/check/gpu/sixteen_bit 42
	$(DRIVER) cuda edges
	$(DRIVER) cuda --planted none edges
	$(DRIVER) cuda --planted dynamic_none edges
	@$(MUST_FIND) 'around C was changed' $(DRIVER) cuda --planted global_overwrite few
	@$(MUST_FIND) 'input was changed' $(DRIVER) cuda --planted input_overwrite few
	$(MEMCHECK) edges
	@$(MUST_FIND) 'Invalid __shared__ read' $(MEMCHECK) --planted shared_overread few
	@$(MUST_FIND) 'Invalid __shared__ read' $(MEMCHECK) --planted dynamic_shared_overread few
	@$(MUST_FIND) 'Invalid __global__ read' $(MEMCHECK) --planted global_overread few
	@$(MUST_FIND) 'Invalid __global__ write' $(MEMCHECK) --planted global_overwrite few
	@$(MUST_FIND) 'is misaligned' $(MEMCHECK) --planted misaligned_float4 few
	$(INITCHECK) edges
	@$(MUST_FIND) 'Uninitialized __global__ memory read' $(INITCHECK) --planted reads_C few
	@$(MUST_FIND) 'Uninitialized __global__ memory read' $(INITCHECK) --planted global_overread few
	$(RACECHECK) few
	@$(MUST_FIND) 'Race reported' $(RACECHECK) --planted no_barrier_after_load few
	@$(MUST_FIND) 'Race reported' $(RACECHECK) --planted no_barrier_before_reuse few
	@$(MUST_FIND) 'Race reported' $(RACECHECK) --planted dynamic_no_barrier_after_load few
	@$(MUST_FIND) 'Race reported' $(RACECHECK) --planted dynamic_no_barrier_before_reuse few
	$(SYNCCHECK) $(PAIRED_ARRIVALS:%=--without %) few
	@build/check/gpu/hopper clusters | grep -q 'not for this GPU' || $(MAKE) gpu-sanitize-clusters
	@$(MUST_FIND) 'Barrier error' $(SYNCCHECK) --planted divergent_barrier few

# For a GPU of compute capability 9.0.
gpu-sanitize-clusters: HOPPER := build/check/gpu/hopper
gpu-sanitize-clusters: UNDER = $(COMPUTE_SANITIZER) --error-exitcode 9 --print-limit 5 --tool
gpu-sanitize-clusters: RACECHECK = $(UNDER) racecheck $(HOPPER) --planted
gpu-sanitize-clusters: gpu-driver
	$(UNDER) memcheck $(HOPPER) clusters
	$(UNDER) racecheck $(HOPPER) clusters
	$(UNDER) synccheck $(HOPPER) clusters
	$(RACECHECK) cluster_none
	@$(MUST_FIND) 'invalid __shared__ read' $(RACECHECK) no_cluster_barrier_before_reading
	@$(MUST_FIND) 'invalid __shared__ read' $(RACECHECK) block_barrier_before_reading
	@$(MUST_FIND) 'block that might have already exited' $(RACECHECK) no_cluster_barrier_before_end
