/* SPDX-License-Identifier: BSD-3-Clause */
/* A doubly linked list through members of its elements. The head is a link of its own; an element
 * not in a list points to itself, so that removing it again does no harm. */
#ifndef OCCL_SRC_UTIL_LIST_H
#define OCCL_SRC_UTIL_LIST_H

#include <stddef.h>
#include <stdint.h>

typedef struct occl_list {
    struct occl_list *next, *prev;
} occl_list_t;

#define OCCL_LIST_INIT(name) {&(name), &(name)}
#define OCCL_CONTAINER(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

static inline void occl_list_init(occl_list_t *l) { l->next = l->prev = l; }
static inline int occl_list_empty(const occl_list_t *l) { return l->next == l; }

static inline void occl_list_insert_after(occl_list_t *at, occl_list_t *e)
{
    e->prev = at;
    e->next = at->next;
    at->next->prev = e;
    at->next = e;
}

static inline void occl_list_push_front(occl_list_t *head, occl_list_t *e)
{
    occl_list_insert_after(head, e);
}

static inline void occl_list_push_back(occl_list_t *head, occl_list_t *e)
{
    occl_list_insert_after(head->prev, e);
}

static inline void occl_list_remove(occl_list_t *e)
{
    e->prev->next = e->next;
    e->next->prev = e->prev;
    e->next = e->prev = e;
}

/* The first element, taken out, or NULL. */
static inline occl_list_t *occl_list_pop(occl_list_t *head)
{
    occl_list_t *e = head->next;

    if (e == head)
        return NULL;
    occl_list_remove(e);
    return e;
}

/* Every element in order; the body may remove and free e. */
#define OCCL_LIST_EACH(e, nextvar, head, type, member)                                        \
    for (type *e = OCCL_CONTAINER((head)->next, type, member),                                \
              *nextvar = OCCL_CONTAINER(e->member.next, type, member);                        \
         &e->member != (head); e = nextvar, nextvar = OCCL_CONTAINER(e->member.next, type, member))

static inline uint32_t occl_list_length(const occl_list_t *list)
{
    uint32_t n = 0;
    for (const occl_list_t *e = list->next; e != list; e = e->next)
        n++;
    return n;
}

#endif
