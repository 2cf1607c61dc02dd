/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a call inside the library returns. mpi-ext/ alone turns these into MPI error codes.
 *
 * A status says that something went wrong and of which kind; the words (who, what, how much)
 * travel beside it in a text written by the first function that knows the cause.
 */
#ifndef OCCL_SRC_UTIL_STATUS_H
#define OCCL_SRC_UTIL_STATUS_H

/* X(id, short description). The numbers cross process borders (error records) within one library
 * version only. */
#define OCCL_STATUS_TABLE(X)                                              \
    X(OK, "success")                                                      \
    X(ERR_ARG, "invalid argument")                                        \
    X(ERR_MISMATCH, "the members disagree about this collective")         \
    X(ERR_TIMEOUT, "a deadline has passed")                               \
    X(ERR_PEER_FAILED, "a member has failed")                             \
    X(ERR_REVOKED, "the communicator has been revoked")                   \
    X(ERR_UNSUPPORTED, "not supported here")                              \
    X(ERR_DEVICE, "the device reported an error")                         \
    X(ERR_RESOURCE, "out of a resource")                                  \
    X(ERR_NOT_ATTACHED, "the communicator is not attached")               \
    X(ERR_REQUEST, "invalid or busy request")                             \
    X(ERR_COUNT, "invalid count")                                         \
    X(ERR_TYPE, "invalid datatype")                                       \
    X(ERR_OP, "invalid reduction operation")                              \
    X(ERR_ROOT, "invalid root")                                           \
    X(ERR_TAG, "invalid tag")                                             \
    X(ERR_BUFFER, "invalid buffer")                                       \
    X(ERR_RANK, "invalid rank")                                           \
    X(ERR_TRUNCATE, "the message is longer than the receive buffer")      \
    X(ERR_INFO, "invalid info value")                                     \
    X(ERR_COMM, "invalid communicator")                                   \
    X(ERR_PENDING, "not complete")                                        \
    X(ERR_CANCELLED, "withdrawn before it began")                         \
    X(ERR_INTERN, "internal error")

typedef enum {
#define X(id, text) OCCL_##id,
    OCCL_STATUS_TABLE(X)
#undef X
    OCCL_STATUS_COUNT
} occl_status_t;

/* "OCCL_ERR_MISMATCH"; "OCCL_ERR_?" for a number that is none. Never NULL. */
const char *occl_status_name(occl_status_t status);
/* The short description. Never NULL. */
const char *occl_status_text(occl_status_t status);

#endif
