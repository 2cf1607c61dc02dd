# SPDX-License-Identifier: BSD-3-Clause
# Everything that knows MPI handles: occl_mpi_files += ...

occl_mpi_files += mpi-ext/c/placeholder.c
