! SPDX-License-Identifier: BSD-3-Clause
! Every call with `use mpix_occl_f08`: see calls.inc.
#define F08
#define CALLS_M calls_f08
#define WAY 'use mpi_f08'
#define DATATYPE_T type(MPI_Datatype)
#define OP_T type(MPI_Op)
#define COMM_T type(MPI_Comm)
#define REQUEST_T type(MPI_Request)
#define COLL_T type(MPIX_Occl_Coll)
#define STATUS_T(s) type(MPI_Status) :: s
#define STATUSES_T(s, n) type(MPI_Status) :: s(n)
#define SOURCE(s) s%MPI_SOURCE
#define TAG(s) s%MPI_TAG
#define SOURCE_OF(s, i) s(i)%MPI_SOURCE
#include "test/fortran/calls.inc"
