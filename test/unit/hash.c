/* SPDX-License-Identifier: BSD-3-Clause */
/* The map, the random generator, the list and the text builder. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"
#include "util/hash.h"
#include "util/list.h"
#include "util/rng.h"
#include "util/status.h"
#include "util/strbuf.h"

/* Random puts and removes beside a plain array that says what must be there. Few keys, so that runs
 * of slots form, wrap round the end of the table and are broken up again. */
static void test_against_array(uint64_t seed, int keys, int steps)
{
    occl_hash_t h = OCCL_HASH_INIT;
    uintptr_t *want = (uintptr_t *)calloc((size_t)keys, sizeof *want);
    occl_rng_t rng;
    size_t count = 0, seen = 0, at;
    int wrong = 0;
    uint64_t key;
    void *value;

    if (!want)
        bail("no memory");
    occl_rng_seed(&rng, seed, 0);
    for (int i = 0; i < steps; i++) {
        int k = (int)occl_rng_below(&rng, (uint64_t)keys);

        if (occl_rng_below(&rng, 5) < 3) {
            uintptr_t v = (uintptr_t)occl_rng_below(&rng, 1000) + 1;

            count += !want[k];
            want[k] = v;
            wrong += occl_hash_put(&h, (uint64_t)k, (void *)v) != OCCL_OK;
        } else {
            wrong += (uintptr_t)occl_hash_remove(&h, (uint64_t)k) != want[k];
            count -= want[k] != 0;
            want[k] = 0;
        }
        if (i % 64 == 0)
            for (int j = 0; j < keys; j++)
                wrong += (uintptr_t)occl_hash_get(&h, (uint64_t)j) != want[j];
    }
    for (int j = 0; j < keys; j++)
        wrong += (uintptr_t)occl_hash_get(&h, (uint64_t)j) != want[j];
    for (at = 0; (value = occl_hash_next(&h, &at, &key));) {
        wrong += want[key] != (uintptr_t)value;
        seen++;
    }
    ok(wrong == 0, "%d keys, %d random puts and removes: the map holds what an array holds", keys,
       steps);
    ok(h.count == count && seen == count, "and counts and visits each entry once (%zu)", count);
    occl_hash_fini(&h);
    free(want);
}

static void test_hash(void)
{
    occl_hash_t h = OCCL_HASH_INIT;
    int x = 0, wrong = 0;

    ok(!occl_hash_get(&h, 5) && !occl_hash_remove(&h, 5), "an empty map has nothing");
    is_int(occl_hash_put(&h, 5, NULL), OCCL_ERR_ARG, "NULL is no value");
    is_int(occl_hash_put(&h, 0, &x), OCCL_OK, "key 0 is a key");
    is_int(occl_hash_put(&h, UINT64_MAX, &wrong), OCCL_OK, "and so is the largest");
    ok(occl_hash_get(&h, 0) == &x && occl_hash_get(&h, UINT64_MAX) == &wrong, "both are found");
    is_int(occl_hash_put(&h, 0, &h), OCCL_OK, "a key may be put again");
    ok(occl_hash_get(&h, 0) == &h && h.count == 2, "its value is replaced");
    for (uint64_t k = 0; k < 20000; k++)
        wrong += occl_hash_put(&h, k << 32, &x) != OCCL_OK;
    for (uint64_t k = 0; k < 20000; k++)
        wrong += occl_hash_get(&h, k << 32) != &x;
    is_int(wrong, 0, "20000 keys that differ in high bits only are kept");
    for (uint64_t k = 0; k < 20000; k++)
        wrong += occl_hash_remove(&h, k << 32) != &x;
    is_int(wrong, 0, "and removed");
    is_int((long long)h.count, 1, "one is left");
    occl_hash_fini(&h);
    ok(!occl_hash_get(&h, UINT64_MAX), "after fini the map is empty");

    test_against_array(1, 11, 4000);
    test_against_array(2, 40, 4000);
    test_against_array(3, 1000, 20000);
    ok(occl_hash_bytes("abcdefgh", 8, 1) != occl_hash_bytes("abcdefgi", 8, 1) &&
           occl_hash_bytes("abc", 3, 1) != occl_hash_bytes("abc", 3, 2) &&
           occl_hash_bytes("a\0", 2, 1) != occl_hash_bytes("a", 1, 1),
       "a hash of bytes depends on every byte, the length and the seed");
}

static void test_rng(void)
{
    occl_rng_t a, b;
    int v[50], seen[50] = {0}, same = 1, in_range = 1, all = 1;

    occl_rng_seed(&a, 7, 0);
    occl_rng_seed(&b, 7, 0);
    for (int i = 0; i < 100; i++)
        same &= occl_rng_next(&a) == occl_rng_next(&b);
    ok(same, "one seed, one sequence");
    occl_rng_seed(&b, 7, 1);
    ok(occl_rng_next(&a) != occl_rng_next(&b), "another stream is another sequence");
    for (int i = 0; i < 1000; i++)
        in_range &= occl_rng_below(&a, 3) < 3;
    ok(in_range && occl_rng_below(&a, 0) == 0 && occl_rng_below(&a, 1) == 0, "below stays below");
    for (int i = 0; i < 50; i++)
        v[i] = i;
    occl_rng_shuffle(&a, v, 50);
    for (int i = 0; i < 50; i++)
        seen[v[i]]++;
    for (int i = 0; i < 50; i++)
        all &= seen[i] == 1;
    ok(all, "a shuffle keeps every element");
}

typedef struct item {
    int value;
    occl_list_t link;
} item_t;

static void test_list(void)
{
    occl_list_t head;
    item_t items[4];
    int sum = 0, order = 0;

    occl_list_init(&head);
    ok(occl_list_empty(&head) && !occl_list_pop(&head), "a new list is empty");
    for (int i = 0; i < 4; i++) {
        items[i].value = i + 1;
        occl_list_push_back(&head, &items[i].link);
    }
    OCCL_LIST_EACH(it, next, &head, item_t, link)
        order = order * 10 + it->value;
    is_int(order, 1234, "elements come in the order they were put");
    occl_list_remove(&items[1].link);
    occl_list_remove(&items[1].link);
    occl_list_push_front(&head, &items[1].link);
    OCCL_LIST_EACH(it, next, &head, item_t, link) {
        sum = sum * 10 + it->value;
        occl_list_remove(&it->link);
        it->link.next = it->link.prev = NULL; /* as good as freed */
    }
    is_int(sum, 2134, "an element may be removed twice, put again, and freed while walking");
    ok(occl_list_empty(&head), "then the list is empty");
}

static void test_strbuf(void)
{
    char small[16], *taken;
    occl_strbuf_t b;

    occl_strbuf_init(&b);
    is_str(b.text, "", "a new text is empty");
    for (int i = 0; i < 300; i++)
        occl_strbuf_printf(&b, "%d,", i % 10);
    is_int((long long)b.len, 600, "it grows");
    ok(!b.cut && strlen(b.text) == 600, "and is whole");
    occl_strbuf_clear(&b);
    occl_strbuf_printf(&b, "%400d", 7);
    is_int((long long)b.len, 400, "one piece may be long");
    occl_strbuf_clear(&b);
    occl_strbuf_size(&b, 128 << 10);
    occl_strbuf_add(&b, " ");
    occl_strbuf_time(&b, 20000);
    is_str(b.text, "128K 20us", "sizes and times are written as people write them");
    taken = occl_strbuf_take(&b);
    is_str(taken ? taken : "(none)", "128K 20us", "the text can be taken");
    is_str(b.text, "", "then there is a new one");
    free(taken);
    occl_strbuf_fini(&b);

    occl_strbuf_fixed(&b, small, sizeof small);
    occl_strbuf_add(&b, "0123456789abcde");
    ok(!b.cut && b.len == 15, "an array is filled to the last byte");
    occl_strbuf_fixed(&b, small, sizeof small);
    occl_strbuf_add(&b, "0123456789abcdef");
    is_str(small, "0123456789ab...", "what does not fit is cut with dots");
    occl_strbuf_add(&b, "x");
    is_str(small, "0123456789ab...", "and stays cut");
    occl_strbuf_fixed(&b, NULL, 0);
    occl_strbuf_add(&b, "x");
    is_str(b.text, "", "no array: nothing is kept, nothing breaks");
    occl_strbuf_fixed(&b, small, 2);
    occl_strbuf_add(&b, "xyz");
    is_str(small, "x", "an array too short for dots");
}

static void test_status(void)
{
    int named = 1;

    is_str(occl_status_name(OCCL_ERR_MISMATCH), "OCCL_ERR_MISMATCH", "a status has its name");
    is_str(occl_status_name((occl_status_t)9999), "OCCL_ERR_?", "a number that is none says so");
    for (int i = 0; i < OCCL_STATUS_COUNT; i++)
        named &= occl_status_name((occl_status_t)i) && occl_status_text((occl_status_t)i)[0];
    ok(named, "each has a name and a text");
    is_int(OCCL_OK, 0, "success is 0");
}

int main(void)
{
    test_hash();
    test_rng();
    test_list();
    test_strbuf();
    test_status();
    return tap_done();
}
