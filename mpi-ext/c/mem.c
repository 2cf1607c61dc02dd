/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that operations use in place. */
#include "internal.h"

#include <string.h>

int PMPIX_Occl_mem_alloc(MPI_Aint size, MPI_Comm comm, void *baseptr)
{
    static const char fn[] = "MPIX_Occl_mem_alloc";
    char why[256];
    void *p = NULL;
    occl_status_t status;
    occl_mpi_comm_t *m;

    if (!occl_mpi_is_up())
        return occl_mpi_fail_down(fn);
    m = occl_mpi_comm_find(comm, &status, why, sizeof why);
    if (!m)
        return occl_mpi_fail(NULL, comm, fn, status, "%s", why);
    if (size < 0 || !baseptr)
        return occl_mpi_fail(m, comm, fn, OCCL_ERR_ARG, size < 0 ? "size is %lld" : "baseptr is NULL", (long long)size);
    status = occl_mem_alloc(m->core, (uint64_t)size, &p);
    if (status != OCCL_OK)
        return occl_mpi_fail(m, comm, fn, status, "%s", occl_last_error());
    memcpy(baseptr, &p, sizeof p); /* a pointer to a pointer of any type, as MPI_Alloc_mem has it */
    return MPI_SUCCESS;
}
OCCL_ALIAS(mem_alloc);

int PMPIX_Occl_mem_free(void *base)
{
    static const char fn[] = "MPIX_Occl_mem_free";

    if (!occl_mpi_is_up())
        return occl_mpi_fail_down(fn);
    if (!base)
        return MPI_SUCCESS;
    if (!occl_mpi_is_ready())
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, OCCL_ERR_NOT_ATTACHED, "nothing has been attached in this process yet");
    if (occl_mem_free(occl_mpi.ctx, base) != OCCL_OK)
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, OCCL_ERR_BUFFER, "%s", occl_last_error());
    return MPI_SUCCESS;
}
OCCL_ALIAS(mem_free);

int PMPIX_Occl_mem_register(MPI_Comm comm, void *base, MPI_Aint size)
{
    static const char fn[] = "MPIX_Occl_mem_register";
    char why[256];
    occl_status_t status;
    occl_mpi_comm_t *m;

    if (!occl_mpi_is_up())
        return occl_mpi_fail_down(fn);
    m = occl_mpi_comm_find(comm, &status, why, sizeof why);
    if (!m)
        return occl_mpi_fail(NULL, comm, fn, status, "%s", why);
    if (size < 1)
        return occl_mpi_fail(m, comm, fn, OCCL_ERR_ARG, "size is %lld", (long long)size);
    if (!base || base == OCCL_MPI_SECTION)
        return occl_mpi_fail(m, comm, fn, OCCL_ERR_BUFFER, "%s", base ? OCCL_MPI_SECTION_TEXT : "base is NULL");
    status = occl_mem_register(m->core, base, (uint64_t)size);
    if (status != OCCL_OK)
        return occl_mpi_fail(m, comm, fn, status, "%s", occl_last_error());
    return MPI_SUCCESS;
}
OCCL_ALIAS(mem_register);

int PMPIX_Occl_mem_unregister(MPI_Comm comm, void *base)
{
    static const char fn[] = "MPIX_Occl_mem_unregister";
    char why[256];
    occl_status_t status;
    occl_mpi_comm_t *m;

    if (!occl_mpi_is_up())
        return occl_mpi_fail_down(fn);
    m = occl_mpi_comm_find(comm, &status, why, sizeof why);
    if (!m)
        return occl_mpi_fail(NULL, comm, fn, status, "%s", why);
    status = occl_mem_unregister(m->core, base);
    if (status != OCCL_OK)
        return occl_mpi_fail(m, comm, fn, status, "%s", occl_last_error());
    return MPI_SUCCESS;
}
OCCL_ALIAS(mem_unregister);
