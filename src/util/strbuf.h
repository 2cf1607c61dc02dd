/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Text that grows at its end: error texts, dumps. Either in a caller's array (cut with "..." when
 * it is full) or on the heap. No call fails; on the heap a lack of memory cuts the text too.
 */
#ifndef OCCL_SRC_UTIL_STRBUF_H
#define OCCL_SRC_UTIL_STRBUF_H

#include <stddef.h>
#include <stdint.h>

typedef struct occl_strbuf {
    char *text;  /* always ends with a NUL; "" before the first append, never NULL */
    size_t len;  /* without the NUL */
    size_t cap;  /* bytes at text */
    int heap;    /* text is ours to grow and free */
    int cut;     /* something did not fit */
} occl_strbuf_t;

void occl_strbuf_init(occl_strbuf_t *b);                             /* on the heap */
void occl_strbuf_fixed(occl_strbuf_t *b, char *array, size_t size);  /* size 0: all is dropped */
void occl_strbuf_fini(occl_strbuf_t *b);
void occl_strbuf_clear(occl_strbuf_t *b);                            /* empty, memory kept */
void occl_strbuf_add(occl_strbuf_t *b, const char *text);
void occl_strbuf_addn(occl_strbuf_t *b, const char *text, size_t n);
void occl_strbuf_printf(occl_strbuf_t *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void occl_strbuf_size(occl_strbuf_t *b, uint64_t bytes);             /* "128K" */
void occl_strbuf_time(occl_strbuf_t *b, uint64_t ns);                /* "20us" */
/* The text, owned by the caller (free), or NULL without memory; b is then empty. Heap only. */
char *occl_strbuf_take(occl_strbuf_t *b);

#endif
