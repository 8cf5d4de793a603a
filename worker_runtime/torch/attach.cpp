// What Python calls, as operators of torch, so that the library depends on torch's version and not on Python's.
#include <torch/library.h>
#include <torch/version.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>
#include <utility>
#include <vector>

#include "worker_runtime/torch/backend.h"
#include "worker_runtime/torch/group.h"

namespace muster::torch_backend {

namespace {

/// Only virtual functions of the store are called: others are not there in every build of torch, and a store may be
/// written in Python.
class TorchStore final : public MeetingStore {
  public:
    explicit TorchStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

    void set(const std::string& key, const void* value, std::size_t size) override {
        const auto* const bytes = static_cast<const std::uint8_t*>(value);
        store_->set(key, std::vector<std::uint8_t>(bytes, bytes + size));
    }
    std::vector<std::uint8_t> get(const std::string& key) override { return store_->get(key); }
    std::int64_t add(const std::string& key, std::int64_t delta) override { return store_->add(key, delta); }
    bool wait_for(const std::vector<std::string>& keys, std::int64_t timeout_ms) override {
        if (store_->check(keys)) return true;
        if (timeout_ms <= 0) return false;
        try {
            store_->wait(keys, std::chrono::milliseconds(timeout_ms));
            return true;
        } catch (const std::exception&) {
            // Stores have no common error for a timeout. One that is broken says so now.
            return store_->check(keys);
        }
    }

  private:
    const c10::intrusive_ptr<c10d::Store> store_;
};

/// Of many ranks only the first ones and the last one.
std::string text_of(c10::IntArrayRef ranks) {
    constexpr std::size_t named_max = 8;
    if (ranks.size() <= named_max) return c10::str(ranks);
    return c10::str(ranks.slice(0, named_max), " and more to ", ranks.back(), " (", ranks.size(), " in all)");
}

void attach(const c10::intrusive_ptr<c10d::ProcessGroup>& shell, const std::string& name,
            const std::vector<std::int64_t>& world_ranks, std::int64_t timeout_ms) {
    const ReturnToPython returns;
    GroupTerms terms{.name = name, .rank = shell->getRank(), .size = shell->getSize(), .timeout_ms = timeout_ms};
    for (const auto rank : world_ranks) terms.world_ranks.push_back(static_cast<int>(rank));
    if (terms.size > 1) terms.store = std::make_shared<TorchStore>(shell->getStore());
    std::shared_ptr<Group> group;
    try {
        group = std::make_shared<Group>(std::move(terms));
    } catch (const GroupError& error) {
        std::string text = error.what();
        if (error.status() == MUSTER_TIMED_OUT)
            text +=
                "; within " + std::to_string(timeout_ms) +
                " ms all members must call init_process_group(), or new_group() with the same ranks; in the world its "
                "members are the ranks " +
                text_of(world_ranks);
        C10_THROW_ERROR(DistBackendError, text);
    }
    auto options = c10::make_intrusive<c10d::Backend::Options>("muster", std::chrono::milliseconds(timeout_ms));
    options->group_name = name;
    options->global_ranks_in_group.assign(world_ranks.begin(), world_ranks.end());
    shell->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
                      c10::make_intrusive<MusterBackend>(std::move(group), std::move(options)));
}

using Clock = std::chrono::steady_clock;

Clock::duration seconds(double number) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(number));
}

/// For the end of the interpreter: afterwards no thread of ours runs anything that needs it.
bool finish(double grace_seconds) {
    Threads::of_process().begin_end();
    Group::end_all(Clock::now() + seconds(grace_seconds));
    const bool is_quiet = Threads::of_process().close(Clock::now() + seconds(2));
    Graveyard::of_process().empty();
    return is_quiet;
}

}  // namespace

}  // namespace muster::torch_backend

TORCH_LIBRARY(muster, library) {
    library.def(
        "_attach(__torch__.torch.classes.c10d.ProcessGroup shell, str name, int[] world_ranks, int timeout_ms) -> ()",
        [](const c10::intrusive_ptr<c10d::ProcessGroup>& shell, std::string name, std::vector<std::int64_t> world_ranks,
           std::int64_t timeout_ms) { muster::torch_backend::attach(shell, name, world_ranks, timeout_ms); });
    library.def("_built_for() -> str",
                [] { return std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR); });
    library.def("_leave_round(str why, float grace_seconds) -> bool", [](std::string why, double grace_seconds) {
        using namespace muster::torch_backend;
        return Group::leave_all(why, Clock::now() + seconds(grace_seconds));
    });
    library.def("_finish(float grace_seconds) -> bool",
                [](double grace_seconds) { return muster::torch_backend::finish(grace_seconds); });
}
