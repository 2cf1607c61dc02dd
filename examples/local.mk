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

noinst_PROGRAMS += examples/jacobi examples/experts
examples_jacobi_SOURCES = examples/jacobi.c
examples_jacobi_LDADD = $(OCCL_LIB) -lm
examples_experts_SOURCES = examples/experts.c
examples_experts_LDADD = $(OCCL_LIB)

# An object of another name than jacobi.c's: hence flags of its own
if HAVE_FORTRAN
noinst_PROGRAMS += examples/jacobi_f08
endif HAVE_FORTRAN
examples_jacobi_f08_SOURCES = examples/jacobi.f90
examples_jacobi_f08_FCFLAGS = $(AM_FCFLAGS)
examples_jacobi_f08_LDADD = $(OCCL_FORTRAN_LIB) $(OCCL_LIB)
examples/jacobi_f08-jacobi.$(OBJEXT): $(occl_modules)
