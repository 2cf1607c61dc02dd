# SPDX-License-Identifier: BSD-3-Clause
# The core: occl_core_files += ... (sources and headers, no <mpi.h>), with CUDA headers: occl_cuda_files += ...

occl_core_files += src/util/placeholder.c
