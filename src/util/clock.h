/* SPDX-License-Identifier: BSD-3-Clause */
/* The host's clock: nanoseconds of CLOCK_MONOTONIC, the same in every process of a node. 20 ns a
 * call on bare metal, 60 to 100 ns in some virtual machines: a loop that polls reads it every so
 * many polls, and an operation that never waits does not read it at all. */
#ifndef OCCL_SRC_UTIL_CLOCK_H
#define OCCL_SRC_UTIL_CLOCK_H

#include <stdint.h>

uint64_t occl_host_clock_ns(void); /* also declared in kernels/occl_dev.h */

#endif
