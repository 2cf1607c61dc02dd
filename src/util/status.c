/* SPDX-License-Identifier: BSD-3-Clause */
/* Names and descriptions of the statuses. */
#include "util/status.h"

static const char *const status_names[] = {
#define X(id, text) "OCCL_" #id,
    OCCL_STATUS_TABLE(X)
#undef X
};

static const char *const status_texts[] = {
#define X(id, text) text,
    OCCL_STATUS_TABLE(X)
#undef X
};

const char *occl_status_name(occl_status_t status)
{
    return (unsigned)status < OCCL_STATUS_COUNT ? status_names[status] : "OCCL_ERR_?";
}

const char *occl_status_text(occl_status_t status)
{
    return (unsigned)status < OCCL_STATUS_COUNT ? status_texts[status] : "unknown error";
}
