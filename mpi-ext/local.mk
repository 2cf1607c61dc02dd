# SPDX-License-Identifier: BSD-3-Clause
# Everything that knows MPI handles.

occl_mpi_files += \
	mpi-ext/c/internal.h mpi-ext/c/section.h \
	mpi-ext/c/process.c \
	mpi-ext/c/error.c \
	mpi-ext/c/type.c \
	mpi-ext/c/layout.c \
	mpi-ext/c/stage.c \
	mpi-ext/c/op.c \
	mpi-ext/c/comm.c \
	mpi-ext/c/coll.c \
	mpi-ext/c/topo.c \
	mpi-ext/c/persist.c \
	mpi-ext/c/queue.c \
	mpi-ext/c/request.c \
	mpi-ext/c/wait.c \
	mpi-ext/c/look.c \
	mpi-ext/c/mem.c

# mpix_occl.h is made from the table of functions. It goes into the tarball, so that only a clone needs perl (as it needs
# Automake). gen-bindings -o moves the file into place: two builds may share this source folder.
include_HEADERS += include/mpix_occl.h include/mpix_occl_cuda.h
EXTRA_DIST += include/mpix_occl.h.in mpi-ext/api.tbl mpi-ext/gen-bindings
BUILT_SOURCES += $(srcdir)/include/mpix_occl.h
MAINTAINERCLEANFILES += $(srcdir)/include/mpix_occl.h
GEN_BINDINGS = perl $(srcdir)/mpi-ext/gen-bindings
$(srcdir)/include/mpix_occl.h: $(srcdir)/include/mpix_occl.h.in $(srcdir)/mpi-ext/api.tbl \
		$(srcdir)/mpi-ext/gen-bindings $(srcdir)/VERSION
	$(AM_V_GEN)$(GEN_BINDINGS) -o $@ header $(srcdir)/mpi-ext/api.tbl $(srcdir)/include/mpix_occl.h.in $(srcdir)/VERSION

#------------------------------------------------------------------------------
# Fortran: a library of its own, which needs a Fortran runtime
#------------------------------------------------------------------------------
# Made from the table as the header is, and in the tarball too, also by who has no Fortran compiler.
occl_fortran_made = mpi-ext/fortran/mpix_occl_f08.F90 mpi-ext/fortran/mpix_occl.F90 mpi-ext/fortran/shims.c include/mpix_occlf.h
EXTRA_DIST += $(occl_fortran_made) mpi-ext/fortran/setup.F90 mpi-ext/fortran/support.c mpi-ext/fortran/support.h
MAINTAINERCLEANFILES += $(addprefix $(srcdir)/,$(occl_fortran_made))
occl_fortran_from = $(srcdir)/mpi-ext/api.tbl $(srcdir)/include/mpix_occl.h.in $(srcdir)/VERSION
$(srcdir)/mpi-ext/fortran/mpix_occl_f08.F90: $(occl_fortran_from) $(srcdir)/mpi-ext/gen-bindings
	$(AM_V_GEN)$(GEN_BINDINGS) -o $@ f08 $(occl_fortran_from)
$(srcdir)/mpi-ext/fortran/mpix_occl.F90: $(occl_fortran_from) $(srcdir)/mpi-ext/gen-bindings
	$(AM_V_GEN)$(GEN_BINDINGS) -o $@ mpi $(occl_fortran_from)
$(srcdir)/include/mpix_occlf.h: $(occl_fortran_from) $(srcdir)/mpi-ext/gen-bindings
	$(AM_V_GEN)$(GEN_BINDINGS) -o $@ mpifh $(occl_fortran_from)
$(srcdir)/mpi-ext/fortran/shims.c: $(occl_fortran_from) $(srcdir)/mpi-ext/gen-bindings
	$(AM_V_GEN)$(GEN_BINDINGS) -o $@ shims $(srcdir)/mpi-ext/api.tbl $(srcdir)/include/mpix_occl.h.in

# Modules are written to, and looked for in, mpi-ext/fortran of the build folder.
AM_FCFLAGS = $(FC_MODOUT)mpi-ext/fortran -Impi-ext/fortran $(FC_QUIET) $(OCCL_FC_DEFS)
OCCL_FORTRAN_LIB = libmpix_occl_fortran@OCCL_SUFFIX@.la
if HAVE_FORTRAN
lib_LTLIBRARIES += libmpix_occl_fortran@OCCL_SUFFIX@.la
include_HEADERS += include/mpix_occlf.h
occl_fmoddir = @OCCL_MODDIR@
nodist_occl_fmod_DATA = mpi-ext/fortran/mpix_occl.mod mpi-ext/fortran/mpix_occl_f08.mod
endif HAVE_FORTRAN
libmpix_occl_fortran@OCCL_SUFFIX@_la_SOURCES = mpi-ext/fortran/mpix_occl_f08.F90 mpi-ext/fortran/mpix_occl.F90 \
	mpi-ext/fortran/setup.F90 mpi-ext/fortran/shims.c mpi-ext/fortran/support.c mpi-ext/fortran/support.h
libmpix_occl_fortran@OCCL_SUFFIX@_la_LIBADD = $(OCCL_LIB)
libmpix_occl_fortran@OCCL_SUFFIX@_la_LDFLAGS = $(AM_LDFLAGS) -version-info $(OCCL_LT_VERSION) -no-undefined

# Who uses a module is compiled after it.
occl_modules = mpi-ext/fortran/mpix_occl.lo mpi-ext/fortran/mpix_occl_f08.lo
mpi-ext/fortran/setup.lo: $(occl_modules)
mpi-ext/fortran/mpix_occl.mod: mpi-ext/fortran/mpix_occl.lo
	@:
mpi-ext/fortran/mpix_occl_f08.mod: mpi-ext/fortran/mpix_occl_f08.lo
	@:
CLEANFILES += mpi-ext/fortran/mpix_occl.mod mpi-ext/fortran/mpix_occl_f08.mod mpi-ext/fortran/occl_f_setup.mod
