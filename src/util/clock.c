/* SPDX-License-Identifier: BSD-3-Clause */
/* CLOCK_MONOTONIC through the vdso: no system call, and the same time base in every process. */
#include <time.h>

#include "util/clock.h"

uint64_t occl_host_clock_ns(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
