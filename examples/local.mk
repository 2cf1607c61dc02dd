# SPDX-License-Identifier: BSD-3-Clause
# Examples, for example:
#   noinst_PROGRAMS += examples/train_digits
#   examples_train_digits_SOURCES = examples/train_digits.c
#   examples_train_digits_LDADD = $(OCCL_LIB) -lm
