# SPDX-License-Identifier: BSD-3-Clause
# Examples: built with the library, not installed.
noinst_PROGRAMS += examples/train_digits

examples_train_digits_SOURCES = examples/train_digits.c
examples_train_digits_CPPFLAGS = $(occl_demo_cppflags) -DTRAIN_DIGITS_DATA='"$(abs_srcdir)/examples/data/optdigits.txt"' $(AM_CPPFLAGS)
examples_train_digits_LDADD = $(OCCL_LIB) $(occl_demo_libs) -lm
occl_demo_cppflags =
occl_demo_libs =
if HAVE_CUDA
occl_demo_cppflags += -DTRAIN_DIGITS_CUDA=1 $(CUDA_CPPFLAGS)
occl_demo_libs += $(CUDA_LIBS)
endif HAVE_CUDA
EXTRA_DIST += examples/data/README examples/data/optdigits.txt
