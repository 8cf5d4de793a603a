// One rank of MPI_Allreduce in place, with the installed Open MPI and its defaults.
#include <mpi.h>

#include "scripts/bench/collectives/measure.h"

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank = 0;
    int size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    bench::pin(rank);
    const bench::Plan plan = bench::plan_from(argc, argv);
    bench::Method method;
    method.rank = rank;
    method.size = size;
    method.barrier = [] { MPI_Barrier(MPI_COMM_WORLD); };
    method.all_reduce = [](void* data, std::size_t bytes) {
        MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(bytes / sizeof(float)), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    };
    method.agree = [](int own) {
        MPI_Bcast(&own, 1, MPI_INT, 0, MPI_COMM_WORLD);
        return own;
    };
    bench::use_f32(method);
    const int status = bench::run(plan, method);
    MPI_Finalize();
    return status;
}
