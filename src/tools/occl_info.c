/* SPDX-License-Identifier: BSD-3-Clause */
/* What this build is and how it is set: version, MPI, devices, environment variables, names of statistics. Starts no MPI. */
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "tool.h"
#include "util/env.h"

#ifndef TOOL_HAVE_CUDA
#define TOOL_HAVE_CUDA 0
#endif

static int info_config, info_stats, info_short;

static const tool_opt_t info_opts[] = {
    {"--config", 'c', TOOL_FLAG, &info_config, "", "only the environment variables, with their values now", 0, 0, NULL},
    {"--stats", 's', TOOL_FLAG, &info_stats, "", "only the names for MPIX_Occl_get_stat", 0, 0, NULL},
    {"--build", 'b', TOOL_FLAG, &info_short, "", "only version, MPI, devices and machine", 0, 0, NULL},
    {0}};

static void put(void *arg, const char *text)
{
    fputs(text, arg);
}

static void one_line(char *text)
{
    text[strcspn(text, "\n")] = 0;
    for (char *c = text; *c; c++)
        if (*c == '\t' || *c == '\r')
            *c = ' ';
}

static void show_build(void)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING + MPIX_OCCL_MAX_LIBRARY_VERSION_STRING] = "";
    struct utsname system;
    int len, major, minor;

    MPIX_Occl_get_library_version(text, &len);
    printf("Library   %s\n", text);
    MPI_Get_library_version(text, &len);
    one_line(text);
    MPI_Get_version(&major, &minor);
    printf("MPI       %s; standard %d.%d\n", text, major, minor);
    printf("Devices   host%s\n", !TOOL_HAVE_CUDA ? "; cuda is not in this build" : ", cuda");
    if (uname(&system) == 0)
        printf("Machine   %s, %s %s, %ld processors\n", system.machine, system.sysname, system.release,
               sysconf(_SC_NPROCESSORS_ONLN));
}

static int show_config(void)
{
    occl_env_t env;
    char err[1024] = "";
    const char *unknown;
    int wrong = occl_env_load(&env, err, sizeof err) != OCCL_OK;

    occl_env_print(&env, OCCL_ENV_PLAIN, put, stdout);
    fflush(stdout);
    if (wrong)
        fprintf(stderr, "occl_info: %s; the library refuses it\n", err);
    if ((unknown = occl_env_unknown()) != NULL)
        fprintf(stderr, "occl_info: %.*s is set, but there is no such variable\n", (int)strcspn(unknown, "="), unknown);
    return wrong;
}

static void show_stats(void)
{
    char name[MPIX_OCCL_MAX_STAT_NAME];
    int len;

    for (int i = 0; MPIX_Occl_get_stat_name(i, name, &len) == MPI_SUCCESS && len; i++)
        printf("%s\n", name);
}

int main(int argc, char **argv)
{
    const tool_program_t prog = {"occl_info", "[options]",
                                 "Tells what this build of MPIX_Occl is and how the environment sets it.\n"
                                 "Exit status: 0, or 1 if a variable has a value that the library refuses.",
                                 info_opts, NULL, NULL};
    char err[256];
    int all, wrong = 0;

    switch (tool_parse(&prog, argc, argv, err, sizeof err)) {
    case TOOL_DONE: return 0;
    case TOOL_WRONG:
        fprintf(stderr, "occl_info: %s\n(occl_info --help tells more)\n", err);
        return 2;
    default: break;
    }
    all = !info_config && !info_stats && !info_short;
    if (all || info_short)
        show_build();
    if (all)
        printf("\nEnvironment\n\n");
    if (all || info_config)
        wrong = show_config();
    if (all)
        printf("\nStatistics (MPIX_Occl_get_stat)\n\n");
    if (all || info_stats)
        show_stats();
    return wrong;
}
