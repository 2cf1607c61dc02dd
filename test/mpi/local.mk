# SPDX-License-Identifier: BSD-3-Clause
# Programs of several ranks under MPIEXEC; each launch costs 2 s, so few of them.
