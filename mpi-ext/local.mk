# SPDX-License-Identifier: BSD-3-Clause
# Everything that knows MPI handles.

occl_mpi_files += \
	mpi-ext/c/internal.h \
	mpi-ext/c/process.c \
	mpi-ext/c/error.c \
	mpi-ext/c/type.c \
	mpi-ext/c/comm.c \
	mpi-ext/c/coll.c \
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
