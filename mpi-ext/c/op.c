/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ops: MPI's and this library's -> the engine's numbers.
 *
 * An op of this library is an MPI_Op like any other, so that it goes wherever one goes; what it does is known here only, by its
 * handle. MPI's own operations would call the function that it was made with, which for an average has no answer: it raises an
 * error.
 */
#include "internal.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/daemon.h"

/* --- ops of this library ------------------------------------------------------------------------------------------- */

static occl_lock_t lock = OCCL_LOCK_INIT;
static occl_mpi_op_t *known;     /* all that were made and not freed */
static atomic_int any;           /* there is one: else MPI's alone need be compared */
static occl_mpi_op_t *average;   /* made when first asked for */

void occl_mpi_op_unref(occl_mpi_op_t *o)
{
    if (atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) == 1)
        free(o);
}

static void not_here(void *in, void *inout, int *len, MPI_Datatype *datatype)
{
    (void)in, (void)inout, (void)len, (void)datatype;
    (void)occl_mpi_fail(NULL, MPI_COMM_NULL, "an op of MPIX_Occl", OCCL_ERR_UNSUPPORTED,
                        "averages and pre-multiplied sums can be used by operations of this library only");
}

/* Makes the MPI_Op, too. NULL: *status_p */
static occl_mpi_op_t *make(MPI_User_function *fn, int commute, occl_status_t *status_p)
{
    occl_mpi_op_t *o = calloc(1, sizeof *o);

    *status_p = OCCL_ERR_RESOURCE;
    if (!o || !occl_mpi_at_finalize() || PMPI_Op_create(fn, commute, &o->op) != MPI_SUCCESS) {
        free(o);
        return NULL;
    }
    atomic_init(&o->refs, 1);
    o->commute = commute;
    *status_p = OCCL_OK;
    return o;
}

static void enlist(occl_mpi_op_t *o)
{
    occl_lock(&lock);
    o->next = known;
    known = o;
    occl_unlock(&lock);
    atomic_store_explicit(&any, 1, memory_order_release);
}

/* With a reference */
static occl_mpi_op_t *find(MPI_Op op)
{
    occl_mpi_op_t *o;

    if (!atomic_load_explicit(&any, memory_order_acquire))
        return NULL;
    occl_lock(&lock);
    for (o = known; o && o->op != op; o = o->next)
        ;
    if (o)
        atomic_fetch_add_explicit(&o->refs, 1, memory_order_relaxed);
    occl_unlock(&lock);
    return o;
}

MPI_Op PMPIX_Occl_op(int which)
{
    static occl_lock_t making = OCCL_LOCK_INIT;
    occl_status_t status;
    MPI_Op op = MPI_OP_NULL;

    if (which != 0 || !occl_mpi_is_up())
        return MPI_OP_NULL;
    occl_lock(&making); /* held over a call of MPI that is local and calls nobody */
    if (!average && (average = make(not_here, 1, &status)) != NULL) {
        average->id = OCCL_OP_AVG;
        enlist(average);
    }
    if (average)
        op = average->op;
    occl_unlock(&making);
    return op;
}
OCCL_ALIAS(op);

int PMPIX_Occl_op_create(MPI_User_function *user_fn, int commute, MPI_Op *op)
{
    static const char fn[] = "MPIX_Occl_op_create";
    occl_status_t status;
    occl_mpi_op_t *o;

    if (!occl_mpi_is_up())
        return occl_mpi_fail_down(fn);
    if (!user_fn || !op)
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, OCCL_ERR_ARG, "%s is NULL", op ? "user_fn" : "op");
    if (!(o = make(user_fn, commute != 0, &status)))
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, status, "no memory, or MPI_Op_create failed");
    o->id = OCCL_OP_USER;
    o->fn = user_fn;
    enlist(o);
    *op = o->op;
    return MPI_SUCCESS;
}
OCCL_ALIAS(op_create);

int PMPIX_Occl_op_create_premul(const void *scalar, MPI_Datatype datatype, MPI_Op *op)
{
    static const char fn[] = "MPIX_Occl_op_create_premul";
    char why[256] = "";
    occl_mpi_type_t t;
    occl_status_t status;
    occl_mpi_op_t *o;

    if (!occl_mpi_is_up())
        return occl_mpi_fail_down(fn);
    if (!scalar || !op)
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, scalar ? OCCL_ERR_ARG : OCCL_ERR_BUFFER, "%s is NULL", scalar ? "op" : "scalar");
    /* The table of types is made with the process. */
    status = occl_mpi_begin(why, sizeof why);
    if (status == OCCL_OK)
        status = occl_mpi_type_get(datatype, &t, why, sizeof why);
    if (status == OCCL_OK && (t.n != 1 || !(t.ops >> OCCL_OP_PREMUL & 1))) {
        status = OCCL_ERR_TYPE;
        snprintf(why, sizeof why, "a sum of products is not defined for this datatype (%s)", occl_mpi_type_name(t.id));
    }
    if (status == OCCL_OK && !(o = make(not_here, 1, &status)))
        snprintf(why, sizeof why, "no memory, or MPI_Op_create failed");
    if (status != OCCL_OK)
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, status, "%s", why);
    o->id = OCCL_OP_PREMUL;
    o->type = t.id;
    memcpy(o->scale, scalar, occl_host_type_bytes(t.id));
    /* The scalar goes into the signature, so what is padding must be the same everywhere. */
    if (LDBL_MANT_DIG == 64 && sizeof(long double) == 16 && (t.id == OCCL_T_FLD || t.id == OCCL_T_CLD))
        o->scale[1] &= 0xffff, o->scale[3] &= 0xffff;
    enlist(o);
    *op = o->op;
    return MPI_SUCCESS;
}
OCCL_ALIAS(op_create_premul);

int PMPIX_Occl_op_free(MPI_Op *op)
{
    static const char fn[] = "MPIX_Occl_op_free";
    occl_mpi_op_t *o = NULL;

    if (!occl_mpi_is_up())
        return occl_mpi_fail_down(fn);
    if (!op)
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, OCCL_ERR_ARG, "op is NULL");
    occl_lock(&lock);
    for (occl_mpi_op_t **at = &known; *at; at = &(*at)->next) {
        if ((*at)->op == *op && *at != average) {
            o = *at;
            *at = o->next;
            break;
        }
    }
    occl_unlock(&lock);
    if (!o)
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, OCCL_ERR_OP,
                             "op was not made by MPIX_Occl_op_create or MPIX_Occl_op_create_premul, or was freed");
    PMPI_Op_free(&o->op);
    occl_mpi_op_unref(o);
    *op = MPI_OP_NULL;
    return MPI_SUCCESS;
}
OCCL_ALIAS(op_free);

/* What the program has not freed is lost with MPI. */
void occl_mpi_ops_fini(void)
{
    occl_mpi_op_t *o;

    occl_lock(&lock);
    o = known;
    known = NULL;
    average = NULL;
    occl_unlock(&lock);
    while (o) {
        occl_mpi_op_t *next = o->next;

        if (o->id == OCCL_OP_AVG)
            PMPI_Op_free(&o->op);
        occl_mpi_op_unref(o);
        o = next;
    }
}

/* --- which op on which type --------------------------------------------------------------------------------------- */

static int predefined(MPI_Op op, uint32_t *id_p)
{
    const struct {
        MPI_Op op;
        uint32_t id;
    } all[] = {
        {MPI_SUM, OCCL_OP_SUM},   {MPI_MAX, OCCL_OP_MAX},   {MPI_MIN, OCCL_OP_MIN},   {MPI_PROD, OCCL_OP_PROD},
        {MPI_LAND, OCCL_OP_LAND}, {MPI_BAND, OCCL_OP_BAND}, {MPI_LOR, OCCL_OP_LOR},   {MPI_BOR, OCCL_OP_BOR},
        {MPI_LXOR, OCCL_OP_LXOR}, {MPI_BXOR, OCCL_OP_BXOR}, {MPI_MINLOC, OCCL_OP_MINLOC}, {MPI_MAXLOC, OCCL_OP_MAXLOC},
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (op == all[i].op) {
            *id_p = all[i].id;
            return 1;
        }
    }
    return 0;
}

/* In the order of OCCL_OP_* */
static const char *const op_name[OCCL_OP_COUNT] = {
    "",           "MPI_SUM",  "MPI_PROD", "MPI_MIN",    "MPI_MAX",    "MPI_LAND",      "MPI_LOR",                 "MPI_LXOR",
    "MPI_BAND",   "MPI_BOR",  "MPI_BXOR", "MPI_MINLOC", "MPI_MAXLOC", "MPIX_OCCL_AVG", "a pre-multiplied sum",    "an op of the user",
};

static occl_status_t not_defined(uint32_t id, MPI_Datatype datatype, const occl_mpi_type_t *t, char *why, size_t len)
{
    char name[MPI_MAX_OBJECT_NAME + 1] = "";
    int n = 0;

    PMPI_Type_get_name(datatype, name, &n);
    snprintf(why, len, "%s is not defined for the datatype %s%s", op_name[id], name[0] ? name : occl_mpi_type_name(t->id),
             t->ops ? "" : ": no predefined op is (it is of characters, packed, of mixed types, or has no arithmetic here)");
    return OCCL_ERR_OP;
}

occl_status_t occl_mpi_reduction(MPI_Op op, MPI_Datatype datatype, const occl_mpi_type_t *t, occl_coll_args_t *a, occl_mpi_op_t **o_p,
                                 char *why, size_t len)
{
    static const char gaps[] = "the elements of the datatype have gaps between them, or another order: a predefined op is not applied to "
                               "such ones (an op of the program is)";
    occl_mpi_op_t *o;
    occl_status_t status = OCCL_OK;
    uint32_t id;

    if (OCCL_LIKELY(predefined(op, &id))) {
        a->op = id;
        if (OCCL_UNLIKELY(t->gaps)) {
            snprintf(why, len, "%s", gaps);
            return OCCL_ERR_TYPE;
        }
        return t->ops >> id & 1 ? OCCL_OK : not_defined(id, datatype, t, why, len);
    }
    if (op == MPI_OP_NULL) {
        snprintf(why, len, "the op is MPI_OP_NULL");
        return OCCL_ERR_OP;
    }
    if (op == MPI_REPLACE || op == MPI_NO_OP) {
        snprintf(why, len, "%s is for one-sided communication only", op == MPI_REPLACE ? "MPI_REPLACE" : "MPI_NO_OP");
        return OCCL_ERR_OP;
    }
    o = find(op);
    if (!o || o->id == OCCL_OP_USER) {
        a->op = OCCL_OP_USER;
        *o_p = o;
        return OCCL_OK;
    }
    if (t->gaps) {
        snprintf(why, len, "%s", gaps);
        status = OCCL_ERR_TYPE;
    } else if (o->id == OCCL_OP_AVG && (a->kind == OCCL_COLL_SCAN || a->kind == OCCL_COLL_EXSCAN)) {
        snprintf(why, len, "MPIX_OCCL_AVG is of all members, and a scan has fewer");
        status = OCCL_ERR_OP;
    } else if (!(t->ops >> o->id & 1)) {
        status = not_defined(o->id, datatype, t, why, len);
    } else if (o->id == OCCL_OP_PREMUL && o->type != t->id) {
        snprintf(why, len, "the scalar of the pre-multiplied sum is of another type (%s) than the elements (%s)",
                 occl_mpi_type_name(o->type), occl_mpi_type_name(t->id));
        status = OCCL_ERR_OP;
    } else {
        a->op = o->id;
        memcpy(a->scale, o->scale, sizeof a->scale);
    }
    occl_mpi_op_unref(o);
    return status;
}
