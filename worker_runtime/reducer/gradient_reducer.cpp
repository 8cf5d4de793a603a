#include "muster/gradient_reducer.h"

#include "rendezvous/base/check.h"
#include "worker_runtime/reducer/reducer_body.h"
#include "worker_runtime/reducer/start_up.h"

namespace muster {

using runtime::PassKind;
using runtime::ReducerBody;

Result<GradientReducer> GradientReducer::make(Communicator& communicator, std::vector<Parameter> parameters,
                                              const ReducerOptions& options) {
    auto body = std::make_unique<ReducerBody>(communicator, std::move(parameters), options);
    if (auto ready = body->set_up(); !ready) return with_context(ready.error(), "make a gradient reducer");
    return GradientReducer(std::move(body));
}

Error GradientReducer::refuse(Communicator& communicator, const Error& why) {
    return runtime::compare_registrations(communicator, {}, why).error();
}

GradientReducer::GradientReducer(std::unique_ptr<ReducerBody> body) : body_(std::move(body)) {}
GradientReducer::~GradientReducer() = default;
GradientReducer::GradientReducer(GradientReducer&&) noexcept = default;
GradientReducer& GradientReducer::operator=(GradientReducer&&) noexcept = default;

Result<Layout> GradientReducer::begin_step(float samples) {
    return body_->begin(PassKind::synchronised, samples);
}

Result<Layout> GradientReducer::begin_local_step() {
    return body_->begin(PassKind::local, 1);
}

Result<void> GradientReducer::mark_ready(int parameter, void* after) {
    return body_->mark_ready(parameter, after);
}

Result<void> GradientReducer::finish() {
    return body_->finish();
}

Result<void> GradientReducer::join(const std::function<Result<void>()>& apply) {
    return body_->join(apply);
}

Buffer GradientReducer::gradient(int parameter) const {
    MUSTER_CHECK(parameter >= 0 && static_cast<std::size_t>(parameter) < body_->parameters().size(), parameter);
    return body_->gradient(parameter);
}

bool GradientReducer::used(int parameter) const {
    MUSTER_CHECK(parameter >= 0 && static_cast<std::size_t>(parameter) < body_->parameters().size(), parameter);
    return body_->used(parameter);
}

void GradientReducer::keep(ReducerState& to) const {
    body_->keep(to);
}

Result<void> GradientReducer::restore(const ReducerState& from) {
    return body_->restore(from);
}

Result<bool> GradientReducer::scale_gradients(double factor, void* after) {
    return body_->scale_gradients(factor, after);
}

Result<void> GradientReducer::zero_gradients(void* after) {
    return body_->zero_gradients(after);
}

Result<double> GradientReducer::clip_grad_norm(double max_norm, void* after) {
    return body_->clip_grad_norm(max_norm, after);
}

void GradientReducer::add_data_wait(Duration wait) {
    body_->meter().add_data_wait(wait);
}

const StepCost& GradientReducer::last_step() const {
    return body_->meter().last();
}

std::uint64_t GradientReducer::step_count() const {
    return body_->step_count();
}

CostSummary GradientReducer::costs() const {
    return body_->costs();
}

std::string GradientReducer::description() const {
    return body_->description();
}

std::span<const GradientBucket> GradientReducer::buckets() const {
    return body_->buckets();
}

std::span<const Parameter> GradientReducer::parameters() const {
    return body_->parameters();
}

const ReducerOptions& GradientReducer::options() const {
    return body_->options();
}

Communicator& GradientReducer::communicator() const {
    return body_->communicator();
}

}  // namespace muster
