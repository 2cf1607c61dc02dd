/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs the programs of the manual one after the other in one launch. They are compiled with main, MPI_Init, MPI_Init_thread and
 * MPI_Finalize renamed (examples.t), so each thinks that it is alone; a rank of its own errors is told here.
 */
#include <mpi.h>
#include <stdio.h>

#define X(name, page) int occl_example_##name(int argc, char **argv);
#include "examples.def" /* X(number, "page"), made by examples.t */
#undef X

static const struct {
    const char *page;
    int (*run)(int, char **);
} examples[] = {
#define X(name, page) {page, occl_example_##name},
#include "examples.def"
#undef X
};

int occl_example_init(int *argc, char ***argv);
int occl_example_init_thread(int *argc, char ***argv, int required, int *provided);
int occl_example_finalize(void);

int occl_example_init(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    return MPI_SUCCESS;
}

int occl_example_init_thread(int *argc, char ***argv, int required, int *provided)
{
    (void)argc, (void)argv, (void)required;
    return MPI_Query_thread(provided);
}

int occl_example_finalize(void) { return MPI_SUCCESS; }

int main(int argc, char **argv)
{
    int n = (int)(sizeof examples / sizeof examples[0]), rank, provided;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < n; i++) {
        int bad = examples[i].run(argc, argv) != 0, any;

        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
        MPI_Allreduce(&bad, &any, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD);
        if (rank == 0) {
            printf("example: %s: %s\n", examples[i].page, any ? "failed" : "good");
            fflush(stdout);
        }
    }
    MPI_Finalize();
    return 0;
}
