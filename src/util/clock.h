/* SPDX-License-Identifier: BSD-3-Clause */
/* The host's clock: nanoseconds of CLOCK_MONOTONIC, the same in every process of a node. About 20
 * ns a call. */
#ifndef OCCL_SRC_UTIL_CLOCK_H
#define OCCL_SRC_UTIL_CLOCK_H

#include <stdint.h>

uint64_t occl_host_clock_ns(void); /* also declared in kernels/occl_dev.h */

#endif
