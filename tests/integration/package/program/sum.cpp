// Every public header, and a sum over all ranks.
#include <muster/batch_norm.h>
#include <muster/bucket_exchange.h>
#include <muster/checkpoint.h>
#include <muster/communicator.h>
#include <muster/context.h>
#include <muster/data_type.h>
#include <muster/distributed_sampler.h>
#include <muster/elastic_sampler.h>
#include <muster/gradient_reducer.h>
#include <muster/operation.h>
#include <muster/parameter.h>
#include <muster/preemption.h>
#include <muster/section.h>
#include <muster/sharded_optimizer.h>
#include <muster/step_cost.h>
#include <muster/store.h>
#include <muster/tensor_type.h>

#include <cstdio>
#include <span>
#include <string>
#include <vector>

int main() {
    auto context = muster::Context::from_environment();
    if (!context) {
        std::fprintf(stderr, "%s\n", context.error().context.c_str());
        return 1;
    }
    std::vector<float> values = {static_cast<float>(context->rank() + 1)};
    const auto summed =
        context->world().run(muster::all_reduce(muster::buffer(std::span(values)), muster::ReduceOp::sum));
    if (!summed) {
        std::fprintf(stderr, "%s\n", summed.error().context.c_str());
        return 1;
    }
    std::printf("rank %d of %d: %g over %s\n", context->rank(), context->world_size(), static_cast<double>(values[0]),
                std::string(context->world().transport()).c_str());
}
