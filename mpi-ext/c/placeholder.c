/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands in until this folder has a source: Automake wants one. */
typedef int occl_placeholder_t;
