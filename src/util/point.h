/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Places where a test may hold a thread, to force an interleaving that otherwise is a matter of luck. In builds with OCCL_EMU
 * only; nothing elsewhere. The hook is called with whatever locks the place holds.
 */
#ifndef OCCL_SRC_UTIL_POINT_H
#define OCCL_SRC_UTIL_POINT_H

enum {
    OCCL_POINT_WITHDRAWING, /* word stored and fenced, the others not looked at */
    OCCL_POINT_SEEN,        /* all members' records seen, words not looked at again */
    OCCL_POINT_OPENED,      /* words looked at again: the run will go to the device */
    OCCL_POINT_DISAGREES,   /* a record differs, one's own word not yet stored */
    OCCL_POINT_ANNOUNCING,  /* about to sleep, and nobody knows */
    OCCL_POINT_ANNOUNCED,   /* sleeping stored and fenced, not looked again */
    OCCL_POINT_SLEEPING,    /* looked again, not yet asleep */
    OCCL_POINT_COUNT
};

#if defined(OCCL_EMU) && OCCL_EMU
extern void (*occl_point_hook)(int point, void *ctx);
#define OCCL_POINT(name, ctx)                             \
    do {                                                  \
        if (occl_point_hook)                              \
            occl_point_hook(OCCL_POINT_##name, (ctx));    \
    } while (0)
#else
#define OCCL_POINT(name, ctx) ((void)0)
#endif

#endif
