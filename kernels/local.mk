# SPDX-License-Identifier: BSD-3-Clause
# Portable device code: headers and daemon_host.c

occl_core_files += kernels/occl_dev.h kernels/occl_dev_atomic.h kernels/occl_dev_types.h \
	kernels/occl_dev_data.h kernels/occl_dev_plan.h kernels/occl_dev_link.h kernels/occl_dev_chan.h \
	kernels/occl_dev_front.h kernels/occl_dev_step.h kernels/occl_dev_quick.h kernels/occl_dev_sched.h kernels/daemon.h kernels/daemon_host.c

# The CUDA translation unit: part of the library wherever nvcc is
occl_cuda_files += kernels/daemon.cu
