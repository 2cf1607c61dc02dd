# SPDX-License-Identifier: BSD-3-Clause
# The core: occl_core_files += ... (sources and headers, no <mpi.h>), with CUDA headers: occl_cuda_files += ...

# util: serves all
occl_core_files += \
	src/util/clock.c \
	src/util/clock.h \
	src/util/env.c \
	src/util/env.def \
	src/util/env.h \
	src/util/futex.h \
	src/util/hash.c \
	src/util/hash.h \
	src/util/list.h \
	src/util/lock.h \
	src/util/log.c \
	src/util/log.h \
	src/util/point.h \
	src/util/rng.h \
	src/util/status.c \
	src/util/status.h \
	src/util/strbuf.c \
	src/util/strbuf.h

# topo: which node, process, processor
occl_core_files += \
	src/topo/topo.c \
	src/topo/topo.h

# transport: how the memory of a peer is reached
occl_core_files += \
	src/transport/arena.c \
	src/transport/arena.h src/transport/far.h \
	src/transport/cma.c \
	src/transport/cma.h

# plan: one file an algorithm
occl_core_files += src/plan/plan.c src/plan/plan.h src/plan/planner.h src/plan/select.c src/plan/select.h
occl_core_files += src/plan/oneshot.c src/plan/twoshot.c src/plan/direct.c src/plan/ring.c src/plan/tree.c
occl_core_files += src/plan/pairwise.c src/plan/dissemination.c src/plan/push.c src/plan/scan.c src/plan/exchange.c

# device: where channels run
occl_cuda_files += src/device/cuda.c src/device/cuda.h src/device/cuda_device.c \
	src/transport/cuda_ipc.c src/transport/cuda_ipc.h
occl_core_files += src/device/device.h src/device/daemon.c src/device/host.c src/device/emu.h src/device/emu.c

# progress: the helper thread
occl_core_files += src/progress/helper.h src/progress/helper.c

# core: communicators, tags, runs
occl_core_files += src/core/core.h src/core/internal.h src/core/ctx.c src/core/comm.c src/core/tag.c src/core/run.c \
	src/core/coll.c src/core/queue.c src/core/wait.c src/core/stat.c src/core/mem.c
