// The same training as digits_trainer's, with the network, its backward pass and the optimizer from libtorch: where a
// C++ trainer has no DistributedDataParallel, the gradient reducer takes its place. What is particular to it:
//
//   * each parameter's .grad is a view of the reducer's memory, so autograd adds gradients up right where they are sent
//     from; they are zeroed, never replaced (zero_grad(set_to_none) would);
//   * a hook on each gradient accumulator, which autograd runs when that gradient is complete, calls mark_ready().
//
//     muster --nproc-per-node=4 digits_libtorch [--data FILE] [--epochs N] [--losses FILE] ...   (no checkpoints)
#include <torch/torch.h>

#include <cstdio>
#include <fstream>

#include "muster/context.h"
#include "muster/gradient_reducer.h"
#include "worker_runtime/examples/digits_data.h"
#include "worker_runtime/examples/trainer_options.h"

namespace muster::runtime {

namespace {

/// Called by autograd, in a thread of its own, when the parameter's gradient is complete.
class ReadyHook : public torch::autograd::FunctionPostHook {
  public:
    ReadyHook(GradientReducer& reducer, int parameter) : reducer_(reducer), parameter_(parameter) {}

    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list&) override {
        const auto marked = reducer_.mark_ready(parameter_);
        TORCH_CHECK(marked.has_value(), marked ? "" : marked.error().context);
        return outputs;
    }

  private:
    GradientReducer& reducer_;
    const int parameter_;
};

struct Batch {
    torch::Tensor pixels;
    torch::Tensor labels;
};

Batch batch_of(const std::vector<Digit>& digits, const std::vector<std::uint64_t>& chosen) {
    const auto count = static_cast<std::int64_t>(chosen.size());
    Batch batch{torch::empty({count, static_cast<std::int64_t>(digit_pixel_count)}),
                torch::empty({count}, torch::kLong)};
    for (std::int64_t i = 0; i < count; ++i) {
        const auto& digit = digits[chosen[static_cast<std::size_t>(i)]];
        std::copy(digit.pixels.begin(), digit.pixels.end(), batch.pixels[i].data_ptr<float>());
        batch.labels[i] = digit.label;
    }
    return batch;
}

torch::nn::Sequential make_network() {
    torch::manual_seed(1);
    return torch::nn::Sequential(torch::nn::Linear(64, 48), torch::nn::Tanh(), torch::nn::Linear(48, 32),
                                 torch::nn::Tanh(), torch::nn::Linear(32, 10));
}

std::vector<Parameter> parameters_of(const torch::nn::Sequential& network) {
    std::vector<Parameter> parameters;
    for (const auto& item : network->named_parameters()) {
        parameters.push_back({item.key(), item.value().sizes().vec(), DataType::f32, item.value().data_ptr()});
    }
    return parameters;
}

void place_gradients(torch::nn::Sequential& network, const GradientReducer& reducer) {
    int index = 0;
    for (auto& parameter : network->parameters()) {
        parameter.mutable_grad() = torch::from_blob(reducer.gradient(index++).data, parameter.sizes());
    }
}

Result<void> train(const TrainerOptions& options, Communicator& world, torch::nn::Sequential& network,
                   const std::vector<Digit>& digits) {
    auto reducer = MUSTER_TRY(GradientReducer::make(world, parameters_of(network)));
    place_gradients(network, reducer);
    // A hook lives as long as its accumulator. (Which kind of pointer holds that differs between versions of torch.)
    std::vector<decltype(torch::autograd::impl::grad_accumulator(torch::Tensor()))> accumulators;
    for (const auto& parameter : network->parameters()) {
        accumulators.push_back(torch::autograd::impl::grad_accumulator(parameter));
        const int index = static_cast<int>(accumulators.size()) - 1;
        accumulators.back()->add_post_hook(std::make_unique<ReadyHook>(reducer, index));
    }
    const auto& plan = options.plan;
    torch::optim::SGD optimizer(network->parameters(),
                                torch::optim::SGDOptions(plan.learning_rate).momentum(plan.momentum));
    std::ofstream losses;
    if (world.rank() == 0 && !options.losses.empty()) losses.open(options.losses);
    auto sampler = sampler_for(plan, digits.size());
    for (std::uint64_t step = 1; sampler.epoch() < plan.epochs; ++step) {
        const auto samples = sampler.next();
        const auto share = *sampler.indices(samples, {.rank = world.rank(), .world = world.size()});
        const auto batch = batch_of(digits, share);
        const auto begun = MUSTER_TRY(reducer.begin_step(static_cast<float>(share.size())));
        if (begun == Layout::moved) place_gradients(network, reducer);
        reducer.zero_gradients();
        double sums[2] = {0, static_cast<double>(share.size())};
        if (!share.empty()) {
            const auto loss = torch::nn::functional::cross_entropy(network->forward(batch.pixels), batch.labels);
            loss.backward();
            sums[0] = loss.item<double>() * sums[1];
        }
        MUSTER_TRY(reducer.finish());
        optimizer.step();
        MUSTER_TRY(world.run(all_reduce({sums, 2, DataType::f64}, ReduceOp::sum)));
        MUSTER_TRY(sampler.commit(samples));
        char line[64];
        std::snprintf(line, sizeof line, "%llu %.9g\n", static_cast<unsigned long long>(step), sums[0] / sums[1]);
        if (losses.is_open()) losses << line;
    }
    return {};
}

double accuracy(torch::nn::Sequential& network, const std::vector<Digit>& digits) {
    const torch::NoGradGuard no_gradients;
    std::vector<std::uint64_t> all(digits.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    const auto batch = batch_of(digits, all);
    return network->forward(batch.pixels).argmax(1).eq(batch.labels).to(torch::kDouble).mean().item<double>();
}

int run(const TrainerOptions& options, Context& context) {
    const auto fail = [&context](const Error& error) {
        std::fprintf(stderr, "digits_libtorch: rank %d: %s\n", context.rank(), error.context.c_str());
        return 1;
    };
    const auto digits = load_digits(options.data);
    if (!digits) return fail(digits.error());
    auto network = make_network();
    if (auto trained = train(options, context.world(), network, digits->train); !trained) return fail(trained.error());
    const double right = 100 * accuracy(network, digits->test);
    if (context.rank() == 0) std::printf("test accuracy %.2f %%\n", right);
    if (right >= options.accuracy_min) return 0;
    return fail({Errc::invalid_argument, "the test accuracy is below --accuracy-min"});
}

}  // namespace

}  // namespace muster::runtime

int main(int argc, char** argv) try {
    using namespace muster::runtime;
    torch::set_num_threads(1);  // the ranks of a host share its cores
    const auto options = parse_trainer_options({argv + 1, argv + argc});
    auto context = options ? muster::Context::from_environment() : options.error();
    if (!context) {
        std::fprintf(stderr, "digits_libtorch: %s\n", context.error().context.c_str());
        return 2;
    }
    return run(*options, *context);
} catch (const std::exception& failure) {
    std::fprintf(stderr, "digits_libtorch: %s\n", failure.what());
    return 1;
}
