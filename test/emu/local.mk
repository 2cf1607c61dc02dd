# SPDX-License-Identifier: BSD-3-Clause
# Ranks as threads of one process on the emulated device: libocclcore_emu.la, no MPI.
