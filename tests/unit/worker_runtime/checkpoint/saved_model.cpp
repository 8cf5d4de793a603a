#include "tests/unit/worker_runtime/checkpoint/saved_model.h"

#include <algorithm>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/checkpoint/files/durable_file.h"

namespace muster::test {

class StoreInMemory::Connection final : public Store {
  public:
    explicit Connection(StoreInMemory& store) : store_(store) {}

    Result<void> set(std::string_view key, std::string_view value) override {
        const std::lock_guard lock(store_.mutex_);
        store_.values_[std::string(key)] = value;
        store_.changed_.notify_all();
        return {};
    }
    Result<std::string> get(std::string_view key, Duration timeout) override {
        std::unique_lock lock(store_.mutex_);
        const auto there = [&] { return store_.values_.contains(key); };
        if (!store_.changed_.wait_for(lock, timeout, there)) return Error{Errc::timed_out, cat("no ", key)};
        return store_.values_.find(key)->second;
    }
    Result<std::int64_t> add(std::string_view, std::int64_t) override { return Error{Errc::unsupported, "add"}; }
    Result<bool> erase(std::string_view key) override {
        const std::lock_guard lock(store_.mutex_);
        return store_.values_.erase(std::string(key)) > 0;
    }

  private:
    StoreInMemory& store_;
};

std::unique_ptr<Store> StoreInMemory::connect() {
    return std::make_unique<Connection>(*this);
}

std::size_t StoreInMemory::key_count() const {
    const std::lock_guard lock(mutex_);
    return values_.size();
}

SavedModel::SavedModel(int rank_of, int world_of) : rank(rank_of), world(world_of), weight(weight_count), counts(3) {
    const auto part = [this](int r) {
        return momentum_count * static_cast<std::uint64_t>(r) / static_cast<std::uint64_t>(world);
    };
    momentum_begin = part(rank);
    momentum.resize(part(rank + 1) - momentum_begin);
}

void SavedModel::train_to(std::int64_t step) {
    for (std::size_t i = 0; i < weight.size(); ++i) {
        weight[i] = static_cast<float>(step) + 0.25F * static_cast<float>(i % 1000);
    }
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = step * 1000 + static_cast<std::int64_t>(i);
    for (std::size_t i = 0; i < momentum.size(); ++i) {
        momentum[i] = static_cast<double>(step) / static_cast<double>(1 + momentum_begin + i);
    }
    cursor = cat("cursor ", step * 96);
    generator = cat("generator of ", rank, " at ", step);
}

CheckpointState SavedModel::state() {
    CheckpointState state;
    state.tensors = {StateTensor::whole("counts", TensorType::i64, {3}, counts.data()),
                     StateTensor::whole("net.weight", TensorType::f32, {weight_count / 1000, 1000}, weight.data()),
                     StateTensor::shard("net.momentum", TensorType::f64, {17, 59}, momentum.data(), momentum_begin,
                                        momentum.size())};
    state.values = {{"cursor", cursor}};
    state.rank_value = generator;
    return state;
}

void SavedModel::take(const CheckpointState& state) {
    cursor = state.values.at("cursor");
    generator = state.rank_value;
}

bool SavedModel::is_at(std::int64_t step, bool same_world) const {
    SavedModel other(rank, world);
    other.train_to(step);
    return weight == other.weight && counts == other.counts && momentum == other.momentum && cursor == other.cursor &&
           (!same_world || generator == other.generator);
}

std::string with_checkpointers(const std::string& directory, int world, std::int64_t round,
                               const std::function<std::string(Checkpointer&, SavedModel&)>& body,
                               CheckpointOptions options) {
    ThreadGroup group(world);
    StoreInMemory store;
    options.directory = directory;
    return group.run([&](Communicator& communicator) -> std::string {
        auto opened = Checkpointer::open(communicator, store.connect(), {.job = "job", .round = round}, options);
        if (!opened) return opened.error().context;
        SavedModel model(communicator.rank(), communicator.size());
        return body(*opened, model);
    });
}

std::string save_steps(const std::string& directory, int world, std::int64_t round,
                       const std::vector<std::int64_t>& steps, CheckpointOptions options) {
    return with_checkpointers(
        directory, world, round,
        [&](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            for (const auto step : steps) {
                model.train_to(step);
                auto saved = checkpointer.save(step, model.state(), WhenBusy::wait);
                if (saved) saved = checkpointer.finish();
                if (!saved) return saved.error().context;
            }
            return {};
        },
        std::move(options));
}

std::string load_in(const std::string& directory, int world, std::int64_t round, bool same_world) {
    std::vector<std::string> told(static_cast<std::size_t>(world));
    const auto wrong =
        with_checkpointers(directory, world, round, [&](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            auto state = model.state();
            auto loaded = checkpointer.load(state);
            if (!loaded) return loaded.error().context;
            auto& mine = told[static_cast<std::size_t>(model.rank)];
            if (!loaded->has_value()) {
                mine = "none";
                return {};
            }
            model.take(state);
            if (!model.is_at((*loaded)->step, same_world)) return cat("rank ", model.rank, " has another model");
            mine = cat("step ", (*loaded)->step);
            return {};
        });
    if (!wrong.empty()) return wrong;
    for (const auto& each : told) {
        if (each != told.front()) return cat("ranks differ: ", told.front(), " and ", each);
    }
    return told.front();
}

std::string names_of(const std::string& folder) {
    auto names = runtime::names_in(folder);
    return names ? join(*names, " ") : names.error().context;
}

}  // namespace muster::test
