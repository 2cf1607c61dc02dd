! SPDX-License-Identifier: BSD-3-Clause
! Every call with `use mpix_occl`: see calls.inc.
#define USEMPI
#define CALLS_M calls_usempi
#define WAY 'use mpi'
#define DATATYPE_T integer
#define OP_T integer
#define COMM_T integer
#define REQUEST_T integer
#define COLL_T integer
#define STATUS_T(s) integer :: s(MPI_STATUS_SIZE)
#define STATUSES_T(s, n) integer :: s(MPI_STATUS_SIZE, n)
#define SOURCE(s) s(MPI_SOURCE)
#define TAG(s) s(MPI_TAG)
#define SOURCE_OF(s, i) s(MPI_SOURCE, i)
#include "test/fortran/calls.inc"
