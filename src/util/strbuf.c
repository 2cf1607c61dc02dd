/* SPDX-License-Identifier: BSD-3-Clause */
/* Text that grows at its end; see strbuf.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/env.h"
#include "util/strbuf.h"

/* What text points to while there is no memory of ours: never written. */
static char strbuf_nothing[1] = "";

void occl_strbuf_init(occl_strbuf_t *b)
{
    b->text = strbuf_nothing;
    b->len = 0;
    b->cap = 0;
    b->heap = 1;
    b->cut = 0;
}

void occl_strbuf_fixed(occl_strbuf_t *b, char *array, size_t size)
{
    b->text = size ? array : strbuf_nothing;
    b->len = 0;
    b->cap = size;
    b->heap = 0;
    b->cut = 0;
    if (size)
        array[0] = '\0';
}

void occl_strbuf_fini(occl_strbuf_t *b)
{
    if (b->heap && b->cap)
        free(b->text);
    occl_strbuf_init(b);
}

void occl_strbuf_clear(occl_strbuf_t *b)
{
    b->len = 0;
    b->cut = 0;
    if (b->cap)
        b->text[0] = '\0';
}

/* Room for n more bytes and the NUL; false when there is none. */
static int strbuf_reserve(occl_strbuf_t *b, size_t n)
{
    size_t cap = b->cap ? b->cap : 64;
    char *text;

    if (b->cap && n < b->cap - b->len)
        return 1;
    if (!b->heap || n > SIZE_MAX / 4 - b->len)
        return 0;
    while (cap <= b->len + n)
        cap *= 2;
    text = (char *)realloc(b->cap ? b->text : NULL, cap);
    if (!text)
        return 0;
    text[b->len] = '\0';
    b->text = text;
    b->cap = cap;
    return 1;
}

/* Ends a text that is full with dots, so that nobody takes it for the whole. */
static void strbuf_mark_cut(occl_strbuf_t *b)
{
    b->cut = 1;
    if (b->cap > 3) {
        size_t at = b->len + 3 < b->cap ? b->len : b->cap - 4;

        memcpy(b->text + at, "...", 4);
        b->len = at + 3;
    }
}

void occl_strbuf_addn(occl_strbuf_t *b, const char *text, size_t n)
{
    if (b->cut || n == 0)
        return;
    if (!strbuf_reserve(b, n)) {
        size_t room = b->cap ? b->cap - 1 - b->len : 0;

        if (room > n)
            room = n;
        if (room)
            memcpy(b->text + b->len, text, room);
        b->len += room;
        if (b->cap)
            b->text[b->len] = '\0';
        strbuf_mark_cut(b);
        return;
    }
    memcpy(b->text + b->len, text, n);
    b->len += n;
    b->text[b->len] = '\0';
}

void occl_strbuf_add(occl_strbuf_t *b, const char *text)
{
    occl_strbuf_addn(b, text, strlen(text));
}

void occl_strbuf_printf(occl_strbuf_t *b, const char *fmt, ...)
{
    char small[256], *big = NULL;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    if ((size_t)n < sizeof small) {
        occl_strbuf_addn(b, small, (size_t)n);
        return;
    }
    big = (char *)malloc((size_t)n + 1);
    if (!big) {
        occl_strbuf_addn(b, small, sizeof small - 1);
        if (!b->cut)
            strbuf_mark_cut(b);
        return;
    }
    va_start(ap, fmt);
    (void)vsnprintf(big, (size_t)n + 1, fmt, ap);
    va_end(ap);
    occl_strbuf_addn(b, big, (size_t)n);
    free(big);
}

void occl_strbuf_size(occl_strbuf_t *b, uint64_t bytes)
{
    char buf[32];

    occl_strbuf_add(b, occl_format_size(bytes, buf, sizeof buf));
}

void occl_strbuf_time(occl_strbuf_t *b, uint64_t ns)
{
    char buf[32];

    occl_strbuf_add(b, occl_format_time(ns, buf, sizeof buf));
}

char *occl_strbuf_take(occl_strbuf_t *b)
{
    char *text;

    if (!b->heap || !strbuf_reserve(b, 0))
        return NULL;
    text = b->text;
    occl_strbuf_init(b);
    return text;
}
