# SPDX-License-Identifier: BSD-3-Clause
# Portable device code. Headers and daemon_host.c: occl_core_files += ...
# The CUDA translation unit: occl_cuda_files += kernels/daemon.cu

occl_core_files += kernels/occl_dev.h kernels/occl_dev_atomic.h kernels/occl_dev_types.h \
	kernels/occl_dev_data.h
