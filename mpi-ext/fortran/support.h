/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the generated shims.c is written in. Fortran gives addresses: of INTEGERs and handles (MPI_Fint), of LOGICALs, of strings
 * with a length beside, of TYPE(C_PTR). Buffers come as addresses (mpif.h) or as descriptors (the modules).
 *
 * This library is apart from libmpix_occl: it needs a Fortran runtime, and its names are not MPIX_Occl_. It calls the public C
 * functions only, by the names that a tool may take over, so a tool in C sees what a Fortran program calls.
 */
#ifndef OCCL_MPI_EXT_FORTRAN_SUPPORT_H
#define OCCL_MPI_EXT_FORTRAN_SUPPORT_H

#ifdef HAVE_CONFIG_H
#include <config.h>
#endif
#include <mpix_occl.h>

#include <ISO_Fortran_binding.h>
#include <stddef.h>
#include <stdlib.h>

enum {
    OCCL_F_FEW = 16,   /* elements of an array that need no malloc */
    OCCL_F_TEXT = 2048 /* a string, with its end; all that the library gives are shorter */
};

/* Fortran's spelling of a name with underscores: configure found out. */
#define OCCL_F_NAME(lower, upper) OCCL_FC_NAME(lower, upper)
#define OCCL_F_SPELL(lower, upper, target) \
    extern __typeof__(target) OCCL_F_NAME(lower, upper) __attribute__((alias(#target)))

/* A handle of mpi_f08, as a function returns it */
typedef struct {
    MPI_Fint MPI_VAL;
} occl_f08_handle_t;

/* --- sentinels ---------------------------------------------------------------------------------------------------- */

/* MPI_IN_PLACE and its kin are addresses, and each way to MPI (mpif.h, use mpi, use mpi_f08) may have its own. Each tells
 * them once, by a Fortran subroutine (setup_*.F90) that calls occl_f_sentinel. */
enum {
    OCCL_F_BOTTOM,
    OCCL_F_IN_PLACE,
    OCCL_F_STATUS_IGNORE,
    OCCL_F_STATUSES_IGNORE,
    OCCL_F_NO_REQUEST,
    OCCL_F_SENTINELS
};
enum { OCCL_F_WAYS = 3 };
int occl_f_is(int what, const void *p);

/* A buffer as C wants it */
void *occl_f_buffer(void *p);
/* Whether it is one, and no MPI_IN_PLACE: then the arrays that belong to it mean something */
static inline int occl_f_looks(const void *p) { return !occl_f_is(OCCL_F_IN_PLACE, p); }
/* The address of a buffer given by descriptor; of one with gaps an address that no call takes (MPIX_OCCL_SECTION) */
void *occl_f_section(const CFI_cdesc_t *d);
static inline int occl_f_wants(const MPI_Fint *request) { return !occl_f_is(OCCL_F_NO_REQUEST, request); }
static inline int occl_f_wants_all(const MPI_Fint *requests) { return occl_f_wants(requests); }

/* --- values ------------------------------------------------------------------------------------------------------- */

/* An INTEGER that does not fit is one that no call takes. */
static inline int occl_f_int(MPI_Fint x) { return (MPI_Fint)(int)x == x ? (int)x : -2147483647 - 1; }
/* LOGICAL has the size of INTEGER, and a value for true that is the compiler's own. */
void occl_f_flag_out(MPI_Fint *to, int flag);
int occl_f_flag_in(const MPI_Fint *from);

/* Strings: blanks at the end are none of it. Longer ones than OCCL_F_TEXT are cut. */
void occl_f_string_in(char to[OCCL_F_TEXT], const char *from, size_t len);
/* At most `most` characters (-1: no limit), filled up with blanks */
void occl_f_string_out(char *to, size_t len, MPI_Fint most, const char *from);
/* The C function's length of a string out: of what fits, and its end */
int occl_f_length(MPI_Fint length, size_t len);

/* --- arrays ------------------------------------------------------------------------------------------------------- */

/* How long are arrays with an element a member, or a neighbour? 0 of a communicator that is none: the call says so. */
int occl_f_size(MPI_Fint comm);
int occl_f_degree(MPI_Fint comm, int out);
int occl_f_is_root(MPI_Fint comm, MPI_Fint root);

/* Space for n elements: small, or malloc'd, or NULL */
void *occl_f_space(void *small, int n, size_t size);
/* After an OCCL_F_CHECK that found no space: raises it. */
int occl_f_no_memory(void);

/* clang-format off */
#define OCCL_F_ARRAY(type, name, length) \
    type few_##name[OCCL_F_FEW]; int n_##name = (length); type *c_##name = occl_f_space(few_##name, n_##name, sizeof *c_##name);
#define OCCL_F_FREE(name) if (n_##name > OCCL_F_FEW) free(c_##name);
#define OCCL_F_HAS(name) (c_##name || n_##name <= 0)
#define OCCL_F_CHECK(has_all) if (!(has_all)) { rc = occl_f_no_memory(); goto none; }

/* An array of INTEGERs is an array of ints (the C function copies it) unless INTEGER is larger. */
#define OCCL_F_INTS(name, length) \
    int few_##name[OCCL_F_FEW], n_##name = sizeof(MPI_Fint) == sizeof(int) ? 0 : (length); \
    const int *c_##name = occl_f_ints(few_##name, name, n_##name);
#define OCCL_F_INTS_FREE(name) if (n_##name > OCCL_F_FEW) free((void *)c_##name);
const int *occl_f_ints(int *few, const MPI_Fint *from, int n);

/* --- statuses ----------------------------------------------------------------------------------------------------- */

/* What the C function leaves alone stays as it is, so a status goes in before it comes out. */
#define OCCL_F_STATUSES(name, length) \
    MPI_Status few_##name[OCCL_F_FEW]; int n_##name = occl_f_is(OCCL_F_STATUSES_IGNORE, name) ? 0 : (length); \
    MPI_Status *c_##name = occl_f_statuses_in(name, few_##name, n_##name);
/* clang-format on */
MPI_Status *occl_f_status_in(const MPI_Fint *status, MPI_Status *space);
void occl_f_status_out(MPI_Fint *status, const MPI_Status *from);
MPI_Status *occl_f_statuses_in(const MPI_Fint *statuses, MPI_Status *few, int n);
void occl_f_statuses_out(MPI_Fint *statuses, const MPI_Status *from, int n);

#endif
