#include "muster/checkpoint.h"

#include <csignal>
#include <mutex>

#include "muster/preemption.h"
#include "worker_runtime/capi/arguments.h"
#include "worker_runtime/capi/objects.h"

using namespace muster;
using namespace muster::capi;

namespace {

struct CheckpointerObject {
    std::shared_ptr<Context> context;  // outlives the checkpointer
    std::mutex mutex = {};             // threads of the caller may share it
    std::optional<Checkpointer> checkpointer = {};
    CheckpointState loaded = {};  // without tensors
    LoadReport load_report = {};
    std::vector<SaveReport> reports = {};
};

struct PreemptionObject {
    std::shared_ptr<Context> context;
    PreemptionNotice notice;
};

// Made when the library is loaded and never destroyed: threads of the caller may be in a call while the process ends.
auto& checkpointers = *new Handles<muster_checkpointer, CheckpointerObject>("checkpointer");
auto& preemptions = *new Handles<muster_preemption, PreemptionObject>("preemption notice");

/// Runs `body(object)`, one thread at a time.
muster_status with_checkpointer(const char* function, muster_checkpointer* handle, auto&& body) {
    return with(function, checkpointers, handle, [&](CheckpointerObject& found) {
        const std::lock_guard lock(found.mutex);
        return body(found);
    });
}

Result<CheckpointOptions> read_options(const muster_checkpointer_options* options) {
    const auto given = MUSTER_TRY(read(options));
    const auto busy = MUSTER_TRY(read_enumerator<int>(given.when_busy, 3, "value of when_busy"));
    CheckpointOptions chosen;
    const auto timeout = MUSTER_TRY(read_timeout(given.persist_timeout_ms, chosen.persist_timeout));
    chosen.directory = given.directory != nullptr ? given.directory : "";
    if (given.keep_last != 0) chosen.keep_last = given.keep_last;
    chosen.keep_every = given.keep_every;
    chosen.when_busy = busy == MUSTER_BUSY_WAIT ? WhenBusy::wait : WhenBusy::skip;
    chosen.persist_timeout = timeout;
    chosen.copy_to_next_node = given.no_copies == 0;
    chosen.copy_bytes_per_second = given.copy_bytes_per_second;
    if (given.local_directory != nullptr) chosen.local_directory = given.local_directory;
    if (given.shared_every != 0) chosen.shared_every = given.shared_every;
    chosen.replicas = given.spread_replicas == 0 ? Replicas::rank_0 : Replicas::spread;
    chosen.verify_replicas = given.verify_replicas != 0;
    return chosen;
}

Result<StateTensor> read_tensor(const muster_tensor& given, std::size_t index) {
    if (given.name == nullptr) return invalid(cat("tensor ", index, ": `name` is NULL"));
    const auto wrong = [&](const Error& error) { return with_context(error, cat("tensor '", given.name, "'")); };
    const auto type = read_enumerator<TensorType>(given.type, tensor_type_count, "tensor type");
    if (!type) return wrong(type.error());
    const auto placement = read_enumerator<Placement>(given.placement, 2, "placement");
    if (!placement) return wrong(placement.error());
    if (given.shape == nullptr && given.dimension_count > 0) return wrong(invalid("`shape` is NULL"));
    StateTensor tensor;
    tensor.name = given.name;
    tensor.type = *type;
    tensor.data = given.data;
    tensor.placement = *placement;
    if (given.dimension_count > 0) tensor.shape.assign(given.shape, given.shape + given.dimension_count);
    tensor.begin = given.begin;
    tensor.count = given.count;
    return tensor;
}

Result<CheckpointState> read_state(const muster_checkpoint_state* state) {
    if (state == nullptr) return invalid("`state` is NULL");
    const auto given = MUSTER_TRY(read(state));
    if (given.tensors == nullptr && given.tensor_count > 0) return invalid("`tensors` is NULL");
    if (given.values == nullptr && given.value_count > 0) return invalid("`values` is NULL");
    CheckpointState all;
    for (std::size_t i = 0; i < given.tensor_count; ++i) {
        all.tensors.push_back(MUSTER_TRY(read_tensor(given.tensors[i], i)));
    }
    for (std::size_t i = 0; i < given.value_count; ++i) {
        const auto& [key, value] = given.values[i];
        if (key == nullptr || value == nullptr) return invalid(cat("value ", i, ": `key` or `value` is NULL"));
        if (!all.values.emplace(key, value).second) return invalid(cat("the value '", key, "' occurs twice"));
    }
    if (given.rank_value != nullptr) all.rank_value = given.rank_value;
    if (given.rank_bytes == nullptr && given.rank_bytes_size > 0) return invalid("`rank_bytes` is NULL");
    const auto* const bytes = static_cast<const std::byte*>(given.rank_bytes);
    if (given.rank_bytes_size > 0) all.rank_bytes.assign(bytes, bytes + given.rank_bytes_size);
    return all;
}

/// Keeps what came besides tensors, and gives the step.
Result<void> keep(CheckpointerObject& object, CheckpointState& state, const Result<std::optional<LoadReport>>& loaded,
                  std::int64_t& step) {
    if (!loaded) return loaded.error();
    if (!loaded->has_value()) return {};
    state.tensors.clear();
    object.loaded = std::move(state);
    object.load_report = **loaded;
    step = object.load_report.step;
    return {};
}

using PlaceFunction = muster_status (*)(void* argument, muster_tensor* tensors, std::size_t count);

/// Lets the caller give each tensor its memory.
PlaceTensors placed_by(PlaceFunction place, void* argument) {
    return [=](std::vector<StateTensor>& tensors) -> Result<void> {
        std::vector<muster_tensor> shown;
        for (const auto& tensor : tensors) {
            shown.push_back({.name = tensor.name.c_str(),
                             .shape = tensor.shape.data(),
                             .dimension_count = tensor.shape.size(),
                             .type = static_cast<int>(tensor.type),
                             .data = nullptr,
                             .placement = MUSTER_REPLICATED,
                             .begin = 0,
                             .count = 0});
        }
        if (const auto status = place(argument, shown.data(), shown.size()); status != MUSTER_OK) {
            return Error{Errc::cancelled,
                         cat("the function that places tensors returned ", muster_status_name(status))};
        }
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            const auto placement = read_enumerator<Placement>(shown[i].placement, 2, "placement");
            if (!placement) return with_context(placement.error(), cat("tensor '", tensors[i].name, "'"));
            tensors[i].data = shown[i].data;
            tensors[i].placement = *placement;
            tensors[i].begin = shown[i].begin;
            tensors[i].count = shown[i].count;
        }
        return {};
    };
}

}  // namespace

extern "C" {

muster_status muster_checkpointer_open(muster_context* context, const muster_checkpointer_options* options,
                                       muster_checkpointer** checkpointer) {
    return guarded(__func__, [&]() -> Result<void> {
        MUSTER_TRY(give(checkpointer, "checkpointer", nullptr));
        auto found = MUSTER_TRY(contexts.find(context));
        const auto chosen = MUSTER_TRY(read_options(options));
        auto object = std::make_shared<CheckpointerObject>(std::move(found));
        object->checkpointer.emplace(MUSTER_TRY(Checkpointer::open(*object->context, chosen)));
        *checkpointer = checkpointers.add(std::move(object));
        return {};
    });
}

muster_status muster_checkpointer_save(muster_checkpointer* checkpointer, int64_t step,
                                       const muster_checkpoint_state* state, int when_busy) {
    return with_checkpointer(__func__, checkpointer, [&](CheckpointerObject& found) -> Result<void> {
        const auto busy = MUSTER_TRY(read_enumerator<int>(when_busy, 3, "value of when_busy"));
        const auto all = MUSTER_TRY(read_state(state));
        if (busy == MUSTER_BUSY_DEFAULT) return found.checkpointer->save(step, all);
        return found.checkpointer->save(step, all, busy == MUSTER_BUSY_WAIT ? WhenBusy::wait : WhenBusy::skip);
    });
}

muster_status muster_checkpointer_snapshot(muster_checkpointer* checkpointer, int64_t step,
                                           const muster_checkpoint_state* state) {
    return with_checkpointer(__func__, checkpointer, [&](CheckpointerObject& found) -> Result<void> {
        return found.checkpointer->snapshot(step, MUSTER_TRY(read_state(state)));
    });
}

muster_status muster_checkpointer_reserve(muster_checkpointer* checkpointer, const muster_checkpoint_state* state) {
    return with_checkpointer(__func__, checkpointer, [&](CheckpointerObject& found) -> Result<void> {
        return found.checkpointer->reserve(MUSTER_TRY(read_state(state)));
    });
}

muster_status muster_checkpointer_copied_step(muster_checkpointer* checkpointer, int64_t* step) {
    return with_checkpointer(__func__, checkpointer, [&](const CheckpointerObject& found) {
        return give(step, "step", found.checkpointer->copied_step());
    });
}

muster_status muster_checkpointer_load(muster_checkpointer* checkpointer, const muster_checkpoint_state* state,
                                       int64_t* step) {
    return with_checkpointer(__func__, checkpointer, [&](CheckpointerObject& found) -> Result<void> {
        MUSTER_TRY(give(step, "step", -1));
        auto all = MUSTER_TRY(read_state(state));
        const auto loaded = found.checkpointer->load(all);
        return keep(found, all, loaded, *step);
    });
}

muster_status muster_checkpointer_load_as_saved(muster_checkpointer* checkpointer, PlaceFunction place, void* argument,
                                                int64_t* step) {
    return with_checkpointer(__func__, checkpointer, [&](CheckpointerObject& found) -> Result<void> {
        MUSTER_TRY(give(step, "step", -1));
        if (place == nullptr) return invalid("`place` is NULL");
        CheckpointState all;
        const auto loaded = found.checkpointer->load_as_saved(all, placed_by(place, argument));
        return keep(found, all, loaded, *step);
    });
}

muster_status muster_checkpointer_load_clean(muster_checkpointer* checkpointer, const muster_checkpoint_state* own,
                                             int64_t* clean_step, PlaceFunction place, void* argument, int64_t* step) {
    return with_checkpointer(__func__, checkpointer, [&](CheckpointerObject& found) -> Result<void> {
        if (auto good = give(step, "step", -1); !good) return good;
        if (clean_step == nullptr) return invalid("`clean_step` is NULL");
        auto all = MUSTER_TRY(own == nullptr && place != nullptr && *clean_step < 0
                                  ? Result<CheckpointState>(CheckpointState())
                                  : read_state(own));
        CleanStep clean;
        if (*clean_step >= CleanStep::torn) clean.set(*clean_step);
        const auto loaded = place == nullptr
                                ? found.checkpointer->load(all, clean)
                                : found.checkpointer->load_as_saved(all, placed_by(place, argument), clean);
        *clean_step = clean.step();
        return keep(found, all, loaded, *step);
    });
}

muster_status muster_checkpointer_loaded_value(muster_checkpointer* checkpointer, const char* key, char* text,
                                               size_t capacity, size_t* needed) {
    return with_checkpointer(__func__, checkpointer, [&](const CheckpointerObject& found) -> Result<void> {
        if (key == nullptr) return invalid("`key` is NULL");
        const auto value = found.loaded.values.find(key);
        if (value == found.loaded.values.end()) return Error{Errc::not_found, cat("there is no value '", key, "'")};
        return write_text(value->second, text, capacity, needed);
    });
}

muster_status muster_checkpointer_loaded_key(muster_checkpointer* checkpointer, size_t index, char* text,
                                             size_t capacity, size_t* needed) {
    return with_checkpointer(__func__, checkpointer, [&](const CheckpointerObject& found) -> Result<void> {
        const auto& values = found.loaded.values;
        if (index >= values.size()) return Error{Errc::not_found, cat("there are ", values.size(), " values")};
        return write_text(std::next(values.begin(), static_cast<std::ptrdiff_t>(index))->first, text, capacity, needed);
    });
}

muster_status muster_checkpointer_loaded_rank_value(muster_checkpointer* checkpointer, char* text, size_t capacity,
                                                    size_t* needed) {
    return with_checkpointer(__func__, checkpointer, [&](const CheckpointerObject& found) {
        return write_text(found.loaded.rank_value, text, capacity, needed);
    });
}

muster_status muster_checkpointer_loaded_rank_bytes(muster_checkpointer* checkpointer, const void** bytes,
                                                    size_t* size) {
    return with_checkpointer(__func__, checkpointer, [&](const CheckpointerObject& found) -> Result<void> {
        if (bytes == nullptr || size == nullptr) return invalid("`bytes` or `size` is NULL");
        *bytes = found.loaded.rank_bytes.data();
        *size = found.loaded.rank_bytes.size();
        return {};
    });
}

muster_status muster_checkpointer_loaded_from(muster_checkpointer* checkpointer, int* from) {
    return with_checkpointer(__func__, checkpointer, [&](const CheckpointerObject& found) {
        const auto& report = found.load_report;
        return give(from, "from",
                    report.from_survivor     ? MUSTER_FROM_SURVIVOR
                    : report.from_memory     ? MUSTER_FROM_MEMORY
                    : report.from_local_disk ? MUSTER_FROM_LOCAL_DISK
                                             : MUSTER_FROM_SHARED);
    });
}

muster_status muster_checkpointer_loaded_path(muster_checkpointer* checkpointer, char* text, size_t capacity,
                                              size_t* needed) {
    return with_checkpointer(__func__, checkpointer, [&](const CheckpointerObject& found) {
        return write_text(found.load_report.path, text, capacity, needed);
    });
}

muster_status muster_checkpointer_loaded_skipped(muster_checkpointer* checkpointer, char* text, size_t capacity,
                                                 size_t* needed) {
    return with_checkpointer(__func__, checkpointer, [&](const CheckpointerObject& found) {
        return write_text(join(found.load_report.skipped, "\n"), text, capacity, needed);
    });
}

muster_status muster_checkpointer_finish(muster_checkpointer* checkpointer) {
    return with_checkpointer(__func__, checkpointer,
                             [&](CheckpointerObject& found) { return found.checkpointer->finish(); });
}

muster_status muster_checkpointer_take_reports(muster_checkpointer* checkpointer, size_t* count) {
    return with_checkpointer(__func__, checkpointer, [&](CheckpointerObject& found) -> Result<void> {
        if (count == nullptr) return invalid("`count` is NULL");
        found.reports = found.checkpointer->reports();
        *count = found.reports.size();
        return {};
    });
}

muster_status muster_checkpointer_report(muster_checkpointer* checkpointer, size_t index, muster_save_report* report,
                                         char* text, size_t capacity, size_t* needed) {
    return with_checkpointer(__func__, checkpointer, [&](const CheckpointerObject& found) -> Result<void> {
        if (index >= found.reports.size()) {
            return Error{Errc::not_found, cat("there are ", found.reports.size(), " reports")};
        }
        const auto& own = found.reports[index];
        MUSTER_TRY(write(muster_save_report{.size = 0,
                                            .step = own.step,
                                            .persisted = own.persisted ? 1 : 0,
                                            .bytes = own.bytes,
                                            .blocked_ms = own.blocked_ms,
                                            .persist_ms = own.persist_ms},
                         report));
        return write_text(own.persisted ? own.path : own.trouble, text, capacity, needed);
    });
}

muster_status muster_checkpointer_release(muster_checkpointer* checkpointer) {
    return guarded(__func__, [&] { return checkpointers.release(checkpointer); });
}

muster_status muster_preemption_watch(muster_context* context, const int* signals, size_t signal_count,
                                      muster_preemption** preemption) {
    return guarded(__func__, [&]() -> Result<void> {
        MUSTER_TRY(give(preemption, "preemption", nullptr));
        auto found = MUSTER_TRY(contexts.find(context));
        if (signals == nullptr && signal_count > 0) return invalid("`signals` is NULL");
        std::vector<int> chosen = {SIGTERM};
        if (signal_count > 0) chosen.assign(signals, signals + signal_count);
        auto notice = MUSTER_TRY(PreemptionNotice::watch(*found, std::move(chosen)));
        *preemption = preemptions.add(std::make_shared<PreemptionObject>(std::move(found), std::move(notice)));
        return {};
    });
}

muster_status muster_preemption_count(muster_preemption* preemption, int* count) {
    return with(__func__, preemptions, preemption,
                [&](auto& found) { return give(count, "count", found.notice.count()); });
}

muster_status muster_preemption_agreed(muster_preemption* preemption, int* leave) {
    return with(__func__, preemptions, preemption, [&](PreemptionObject& found) -> Result<void> {
        if (leave == nullptr) return invalid("`leave` is NULL");
        return give(leave, "leave", MUSTER_TRY(found.notice.agreed(found.context->world())));
    });
}

muster_status muster_preemption_release(muster_preemption* preemption) {
    return guarded(__func__, [&] { return preemptions.release(preemption); });
}
}
