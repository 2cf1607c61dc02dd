# SPDX-License-Identifier: BSD-3-Clause
# Examples: built with the library, not installed.
noinst_PROGRAMS += examples/train_digits

examples_train_digits_SOURCES = examples/train_digits.c
examples_train_digits_CPPFLAGS = -DTRAIN_DIGITS_DATA='"$(abs_srcdir)/examples/data/optdigits.txt"' $(AM_CPPFLAGS)
examples_train_digits_LDADD = $(OCCL_LIB) -lm
EXTRA_DIST += examples/data/README examples/data/optdigits.txt
