// Makes a reducer, and changes its buckets.
#include <chrono>
#include <cmath>
#include <span>

#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/arithmetic/power_elements.h"
#include "worker_runtime/communicator/private_memory.h"
#include "worker_runtime/reducer/reducer_body.h"
#include "worker_runtime/reducer/start_up.h"
#include "worker_runtime/transport/device_queue.h"
#include "worker_runtime/wires/device_half_exchange.h"
#include "worker_runtime/wires/device_int8_exchange.h"
#include "worker_runtime/wires/device_power_exchange.h"
#include "worker_runtime/wires/exact_exchange.h"
#include "worker_runtime/wires/half_exchange.h"
#include "worker_runtime/wires/int8_exchange.h"
#include "worker_runtime/wires/power_exchange.h"

namespace muster::runtime {

namespace {

constexpr double mib = 1 << 20;

std::size_t bytes_of_mb(double mb) {
    return static_cast<std::size_t>(std::llround(mb * mib));
}

/// Memory that the host reads and writes and that collectives can use, in place if possible.
Result<Memory> host_memory(Communicator& communicator, std::size_t size_bytes) {
    return communicator.device() ? private_memory(size_bytes) : communicator.allocate(size_bytes);
}

/// "25 MiB", "0.5 MiB".
std::string in_mib(double bytes) {
    return cat(std::round(bytes / mib * 10) / 10, " MiB");
}

}  // namespace

Result<std::shared_ptr<BucketExchange>> make_exchange(const ReducerOptions& options, bool on_device) {
    const bool special = options.exchange || options.wire != WireFormat::same;
    if (options.exchange && options.wire != WireFormat::same) {
        return Error{Errc::invalid_argument,
                     "set either `exchange` or `wire`, not both: an exchange defines the format"};
    }
    if (options.result == GradientResult::own_piece) {
        if (special)
            return Error{Errc::invalid_argument, "GradientResult::own_piece supports neither `wire` nor `exchange`"};
        return std::shared_ptr<BucketExchange>(std::make_shared<PieceExchange>());
    }
    if (options.exchange) return options.exchange;
    constexpr int columns_max = static_cast<int>(power_columns_max);
    if (options.wire == WireFormat::power && (options.power_rank < 1 || options.power_rank > columns_max)) {
        return Error{Errc::invalid_argument,
                     cat("power_rank must be 1 to ", columns_max, ", not ", options.power_rank)};
    }
    std::shared_ptr<BucketExchange> exchange;
    const auto half = [on_device](DataType wire) -> std::shared_ptr<BucketExchange> {
        if (on_device) return std::make_shared<DeviceHalfExchange>(wire);
        return std::make_shared<HalfExchange>(wire);
    };
    switch (options.wire) {
        case WireFormat::same: exchange = std::make_shared<ExactExchange>(); break;
        case WireFormat::bf16: exchange = half(DataType::bf16); break;
        case WireFormat::f16: exchange = half(DataType::f16); break;
        case WireFormat::int8:
            if (on_device) return std::shared_ptr<BucketExchange>(std::make_shared<DeviceInt8Exchange>());
            exchange = std::make_shared<Int8Exchange>();
            break;
        case WireFormat::power: {
            const PowerSettings settings{.columns = static_cast<std::size_t>(options.power_rank),
                                         .start_step = options.power_start_step};
            if (on_device) return std::shared_ptr<BucketExchange>(std::make_shared<DevicePowerExchange>(settings));
            exchange = std::make_shared<PowerExchange>(settings);
        }
    }
    return exchange;
}

ReducerBody::ReducerBody(Communicator& communicator, std::vector<Parameter> parameters, const ReducerOptions& options)
    : communicator_(communicator),
      parameters_(std::move(parameters)),
      options_(options),
      device_(communicator.device()),
      usage_(parameters_.size()),
      weights_(static_cast<std::size_t>(communicator.size())),
      meter_(communicator.size()),
      pipeline_(communicator_, meter_),
      marked_before_(parameters_.size()),
      used_(parameters_.size()) {
    // A world of one waits for no other rank, so no order hides anything.
    if (communicator.size() == 1) options_.order = BucketOrder::registered;
    if (options_.result == GradientResult::own_piece) {
        options_.order = BucketOrder::registered;
        caps_.pieces = static_cast<std::size_t>(communicator.size());
    }
}

/// Names the options that need our own kernels on the GPU.
Result<void> ReducerBody::check_device() const {
    if (!device_) return {};
    const auto kernels = device_->has_kernels();
    if (kernels) return {};
    if (options_.wire != WireFormat::same) {
        return Error{Errc::unsupported, cat("wire ", exchange_->name(),
                                            " computes on the GPU, where the gradients are: ", kernels.error().context,
                                            "; or use WireFormat::same there, or register bf16 parameters, whose "
                                            "gradients travel as bf16")};
    }
    if (options_.finite_check == FiniteCheck::on) {
        return Error{Errc::unsupported,
                     cat("finite_check computes on the GPU, where the gradients are: ", kernels.error().context,
                         "; or look at the norm that clip_grad_norm() returns, which is not finite where a gradient is "
                         "not")};
    }
    return {};
}

Result<void> ReducerBody::check_options() const {
    MUSTER_TRY(check_parameters(parameters_));
    MUSTER_TRY(check_device());
    for (const auto& parameter : parameters_) {
        if (!parameter.data && element_count(parameter) > 0) {
            return Error{Errc::invalid_argument,
                         cat("parameter \"", parameter.name, "\" has no memory (data is null)")};
        }
    }
    const bool automatic = options_.bucket_cap_mb == ReducerOptions::automatic;
    for (const double mb : {options_.first_bucket_mb, options_.last_bucket_mb, options_.bucket_cap_mb}) {
        if (!(mb >= 0 && mb <= 1 << 20)) {
            return Error{Errc::invalid_argument, cat("a bucket's size in MiB must be 0 to 1048576, not ", mb)};
        }
    }
    if (!automatic && bytes_of_mb(options_.bucket_cap_mb) == 0) {
        return Error{Errc::invalid_argument, cat("bucket_cap_mb of ", options_.bucket_cap_mb, " is less than a byte")};
    }
    return {};
}

Registration ReducerBody::registration() const {
    const auto number = [](auto value) { return cat(static_cast<std::int64_t>(value)); };
    const bool automatic = options_.bucket_cap_mb == ReducerOptions::automatic;
    return {.parameters = parameters_,
            .settings = {{"bucket_cap_mb", automatic ? "automatic" : cat(options_.bucket_cap_mb)},
                         {"first_bucket_mb", cat(options_.first_bucket_mb)},
                         {"last_bucket_mb", cat(options_.last_bucket_mb)},
                         {"exchange", exchange_ ? exchange_->name() : "none"},
                         {"order", number(options_.order)},
                         {"result", number(options_.result)},
                         {"inputs", number(options_.inputs)},
                         {"finite_check", number(options_.finite_check)}}};
}

Result<void> ReducerBody::set_up() {
    auto exchange = make_exchange(options_, device_ != nullptr);
    if (exchange) exchange_ = std::move(*exchange);
    const Result<void> local = exchange ? check_options() : Result<void>(exchange.error());
    MUSTER_TRY(compare_registrations(communicator_, registration(), local));
    pipeline_.use(*exchange_);
    if (device_) {
        pipeline_.set_weights(weights_.data());
        kernels_ = device_->has_kernels().has_value();
        if (auto ready = device_norm_.prepare(exchange_terms()); !ready) return ready;
    }
    MUSTER_TRY(choose_caps());

    const auto control_bytes = StepControl::size_bytes(parameters_.size(), communicator_.size());
    auto memory = host_memory(communicator_, control_bytes + 1);
    if (!memory) return with_context(memory.error(), "memory for the gradient reducer");
    control_memory_ = std::move(*memory);
    auto* const bytes = reinterpret_cast<std::uint8_t*>(control_memory_.data());
    control_.emplace(std::span(bytes, control_bytes), parameters_.size(), communicator_.size());
    live_ = bytes + control_bytes;

    MUSTER_TRY(take_order(reverse_order(parameters_.size())));
    MUSTER_TRY(broadcast_parameters(communicator_, parameters_, arena_.buckets()));
    MUSTER_TRY(arena_.clear());
    if (communicator_.rank() == 0) {
        if (options_.order == BucketOrder::observed) learner_ = std::make_unique<OrderLearner>(parameters_, caps_);
        log_buckets();
    }
    meter_.start(std::chrono::steady_clock::now());
    return {};
}

/// Reports the capacities that were measured, because the user did not choose them.
void ReducerBody::log_buckets() const {
    if (options_.bucket_cap_mb == ReducerOptions::automatic && log_enabled(LogLevel::warning)) {
        print_notice(cat("muster: gradients: ", description(), "\n"));
    } else {
        log(LogLevel::info, "gradients: ", description());
    }
}

Result<void> ReducerBody::choose_caps() {
    if (options_.bucket_cap_mb == ReducerOptions::automatic) {
        caps_ = MUSTER_TRY(measured_caps(communicator_, caps_));
        return {};
    }
    caps_.cap_bytes = bytes_of_mb(options_.bucket_cap_mb);
    caps_.first_bytes = bytes_of_mb(options_.first_bucket_mb);
    caps_.last_bytes = bytes_of_mb(options_.last_bucket_mb);
    return {};
}

Result<void> ReducerBody::take_order(ParameterOrder order) {
    order_ = std::move(order);
    plan_ = plan_buckets(parameters_, order_, caps_);
    MUSTER_TRY(arena_.hold(communicator_, plan_));
    schedule_ = std::make_unique<BucketSchedule>(plan_);
    if (device_ && options_.finite_check == FiniteCheck::on) {
        if (auto ready = device_check_.prepare(exchange_terms(), arena_.buckets()); !ready) return ready;
    }
    auto ready = exchange_->prepare(exchange_terms(), arena_.buckets());
    if (ready || !options_.exchange) return ready;
    // Our own exchanges fail on all ranks alike. A failure of a trainer's exchange must be sent to the other ranks.
    const auto why = with_context(ready.error(), cat("exchange ", exchange_->name()));
    if (communicator_.status()) communicator_.abort(why.context);
    return why;
}

ExchangeTerms ReducerBody::exchange_terms() const {
    return {.rank = communicator_.rank(),
            .world = communicator_.size(),
            .parameters = parameters_,
            .allocate = [this](std::size_t bytes) { return communicator_.allocate(bytes); },
            .device = device_,
            .timeout = communicator_.timeout(),
            .weights = weights_.data()};
}

/// Distributes rank 0's order to all ranks.
Result<ParameterOrder> ReducerBody::agree_on_order() {
    // The other ranks' bytes are overwritten.
    std::string bytes(encoded_order_bytes(parameters_.size()), '\0');
    if (learner_) bytes = encode(with_rare_last(learner_->order(), usage_.rare()));
    const Buffer buffer{.data = bytes.data(), .count = bytes.size(), .type = DataType::u8};
    MUSTER_TRY(pipeline_.run(broadcast(buffer, 0)));
    return decode_order(bytes, parameters_.size());
}

Result<Layout> ReducerBody::make_buckets_anew() {
    new_buckets_due_ = false;
    auto order = agree_on_order();
    if (!order) return with_context(order.error(), "new buckets in rank 0's order");
    auto taken = take_order(std::move(*order));
    if (!taken) return with_context(taken.error(), "new buckets");
    layout_changed_ = true;
    return Layout::moved;
}

CostSummary ReducerBody::costs() const {
    CostSummary summary = meter_.summary();
    summary.bucket_count = plan_.buckets.size();
    for (const auto& bucket : plan_.buckets) summary.bucket_bytes += bucket.size_bytes;
    return summary;
}

std::string ReducerBody::description() const {
    double bytes = 0;
    for (const auto& bucket : plan_.buckets) bytes += static_cast<double>(bucket.size_bytes);
    const bool automatic = options_.bucket_cap_mb == ReducerOptions::automatic;
    return cat(parameters_.size(), " parameters, ", in_mib(bytes), " in ", plan_.buckets.size(), " buckets (cap ",
               in_mib(static_cast<double>(caps_.cap_bytes)), automatic ? ", chosen by measurement" : "", "), wire ",
               exchange_->name(), ", ", communicator_.size(), " ranks over ", communicator_.transport());
}

}  // namespace muster::runtime
