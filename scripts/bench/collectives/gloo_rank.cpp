// One rank of gloo's all-reduce over TCP (the ring that PyTorch's c10d calls), as Debian packages the library. RANK,
// WORLD_SIZE and BENCH_FOLDER, where the ranks find each other, come from the environment.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <memory>

#include "scripts/bench/collectives/measure.h"

int main(int argc, char** argv) {
    const int rank = std::atoi(std::getenv("RANK"));
    const int size = std::atoi(std::getenv("WORLD_SIZE"));
    gloo::transport::tcp::attr where;
    where.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(where);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    gloo::rendezvous::FileStore store(std::getenv("BENCH_FOLDER"));
    context->connectFullMesh(store, device);
    bench::pin(rank);  // only now: the device's own thread stays free to run beside

    const bench::Plan plan = bench::plan_from(argc, argv);
    bench::Method method;
    method.rank = rank;
    method.size = size;
    method.barrier = [&] {
        gloo::BarrierOptions options(context);
        gloo::barrier(options);
    };
    method.all_reduce = [&](void* data, std::size_t bytes) {
        gloo::AllreduceOptions options(context);
        options.setOutput(static_cast<float*>(data), bytes / sizeof(float));
        options.setReduceFunction(
            static_cast<void (*)(void*, const void*, const void*, std::size_t)>(gloo::sum<float>));
        gloo::allreduce(options);
    };
    method.agree = [&](int own) {
        gloo::BroadcastOptions options(context);
        options.setOutput(&own, 1);
        options.setRoot(0);
        gloo::broadcast(options);
        return own;
    };
    bench::use_f32(method);
    return bench::run(plan, method);
}
