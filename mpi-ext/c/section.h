/* SPDX-License-Identifier: BSD-3-Clause */
/* The address that the Fortran side gives for a section of an array that has gaps. No object is there: it is in the last page
 * of the address space. A call with it is refused, as any with an argument that is not valid, so that its partners are told. */
#ifndef OCCL_MPI_EXT_SECTION_H
#define OCCL_MPI_EXT_SECTION_H

#include <stdint.h>

#define OCCL_MPI_SECTION ((void *)(intptr_t)-64)
#define OCCL_MPI_SECTION_TEXT \
    "a buffer is a section of a Fortran array and has gaps; give an array that is contiguous, or a copy (a temporary of the " \
    "compiler's would be gone before the operation is complete)"

#endif
