/* SPDX-License-Identifier: BSD-3-Clause */
/* Looking inside: statistics, dump, versions. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A program built for another MPI asks for another of these and does not link. */
int MPIX_OCCL_ABI_SYMBOL(void) { return 1; }

int PMPIX_Occl_get_stat(MPI_Comm comm, const char *name, MPI_Count *value)
{
    static const char fn[] = "MPIX_Occl_get_stat";
    char why[256];
    occl_status_t status;
    occl_mpi_comm_t *m = NULL;
    uint64_t v = 0;

    if (!occl_mpi_is_up())
        return occl_mpi_fail_down(fn);
    if (!name || !value)
        return occl_mpi_fail(NULL, comm, fn, OCCL_ERR_ARG, "%s is NULL", name ? "value" : "name");
    if (comm != MPI_COMM_NULL) {
        m = occl_mpi_comm_find(comm, &status, why, sizeof why);
        if (!m)
            return occl_mpi_fail(NULL, comm, fn, status, "%s", why);
    } else if (!occl_mpi_is_ready()) {
        return occl_mpi_fail(NULL, comm, fn, OCCL_ERR_NOT_ATTACHED, "nothing has been attached in this process yet");
    }
    status = occl_get_stat(occl_mpi.ctx, m ? m->core : NULL, name, &v);
    if (status != OCCL_OK)
        return occl_mpi_fail(m, comm, fn, status, "%s", occl_last_error());
    *value = (MPI_Count)v;
    return MPI_SUCCESS;
}
OCCL_ALIAS(get_stat);

int PMPIX_Occl_get_stat_name(int index, char *name, int *resultlen)
{
    static const char fn[] = "MPIX_Occl_get_stat_name";
    const char *found = index >= 0 ? occl_stat_name(index) : NULL;

    if (index < 0 || !name || !resultlen)
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, OCCL_ERR_ARG, index < 0 ? "index is %d" : "name or resultlen is NULL", index);
    snprintf(name, MPIX_OCCL_MAX_STAT_NAME, "%s", found ? found : "");
    *resultlen = (int)strlen(name);
    return MPI_SUCCESS;
}
OCCL_ALIAS(get_stat_name);

static void put_fd(void *state, const char *text)
{
    int fd = *(int *)state;
    size_t left = strlen(text);

    while (left > 0) {
        ssize_t n = write(fd, text, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        text += n;
        left -= (size_t)n;
    }
}

int PMPIX_Occl_dump(MPI_Comm comm, int fd)
{
    static const char fn[] = "MPIX_Occl_dump";
    char why[256];
    occl_status_t status;
    occl_mpi_comm_t *m;

    if (!occl_mpi_is_up())
        return occl_mpi_fail_down(fn);
    m = occl_mpi_comm_find(comm, &status, why, sizeof why);
    if (!m)
        return occl_mpi_fail(NULL, comm, fn, status, "%s", why);
    if (fd < 0)
        return occl_mpi_fail(m, comm, fn, OCCL_ERR_ARG, "fd is %d", fd);
    occl_comm_dump(m->core, put_fd, &fd);
    return MPI_SUCCESS;
}
OCCL_ALIAS(dump);

int PMPIX_Occl_get_version(int *major, int *minor, int *patch)
{
    if (!major || !minor || !patch)
        return occl_mpi_fail(NULL, MPI_COMM_NULL, "MPIX_Occl_get_version", OCCL_ERR_ARG, "an argument is NULL");
    *major = MPIX_OCCL_VERSION_MAJOR;
    *minor = MPIX_OCCL_VERSION_MINOR;
    *patch = MPIX_OCCL_VERSION_PATCH;
    return MPI_SUCCESS;
}
OCCL_ALIAS(get_version);

int PMPIX_Occl_get_library_version(char *version, int *resultlen)
{
    char mpi[64];

    if (!version || !resultlen)
        return occl_mpi_fail(NULL, MPI_COMM_NULL, "MPIX_Occl_get_library_version", OCCL_ERR_ARG, "an argument is NULL");
#if defined(OPEN_MPI)
    snprintf(mpi, sizeof mpi, "Open MPI %d.%d.%d", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION);
#elif defined(MPICH)
    snprintf(mpi, sizeof mpi, "MPICH %s", MPICH_VERSION);
#else
    snprintf(mpi, sizeof mpi, "MPI %d.%d", MPI_VERSION, MPI_SUBVERSION);
#endif
    *resultlen = snprintf(version, MPIX_OCCL_MAX_LIBRARY_VERSION_STRING, "MPIX_Occl %d.%d.%d, built for %s; device: host",
                          MPIX_OCCL_VERSION_MAJOR, MPIX_OCCL_VERSION_MINOR, MPIX_OCCL_VERSION_PATCH, mpi);
    return MPI_SUCCESS;
}
OCCL_ALIAS(get_library_version);
