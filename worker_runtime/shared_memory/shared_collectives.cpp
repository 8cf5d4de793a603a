#include "worker_runtime/shared_memory/shared_collectives.h"

#include <string.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "worker_runtime/arithmetic/reduce_kernels.h"
#include "worker_runtime/core/parts_table.h"

namespace muster::runtime {

namespace {

/// Up to here a copy through the windows, in one step, beats two steps without a copy. Measured: what counts is how
/// many cache lines change owner, and a copy moves each of them twice.
constexpr std::size_t small_in_place_bytes = 1u << 10;
/// The same for memory that has to be copied anyway: one step in which each rank sums everything, against two in which
/// each sums its share.
constexpr std::size_t small_bytes = 16u << 10;

/// memcpy, but for nothing at all from nowhere: an empty buffer has no address.
void copy_with(HelperThreads& helpers, void* to, const void* from, std::size_t size_bytes) {
    if (size_bytes == 0) return;
    helpers.run(size_bytes, 1, 2, [=](std::size_t begin, std::size_t end) {
        ::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin, end - begin);
    });
}

/// Elements [begin, end) of `count` that are `rank`'s to reduce; cut at cache lines, so that no two ranks write one.
struct Slice {
    std::size_t begin;
    std::size_t end;
};

Slice slice_of(std::size_t count, std::size_t element_bytes, int rank, int size) {
    const std::size_t line = 64 / element_bytes;
    const std::size_t lines = (count + line - 1) / line;
    const auto ranks = static_cast<std::size_t>(size);
    const auto number = static_cast<std::size_t>(rank);
    return {std::min(count, lines * number / ranks * line), std::min(count, lines * (number + 1) / ranks * line)};
}

/// One collective on its way: the group, what is done, and how far apart the pieces lie.
class Collective {
  public:
    Collective(SharedGroup& group, const Operation& operation, const RunTerms& terms)
        : group_(group),
          operation_(operation),
          terms_(terms),
          element_bytes_(size_of(operation.type)),
          ranks_(static_cast<std::size_t>(group.size())) {}

    Result<void> barrier() { return next_step(); }
    /// reduce too, where only the root takes the result.
    Result<void> all_reduce();
    Result<void> reduce_scatter();
    /// gather too, where only the root takes the pieces.
    Result<void> all_gather();
    Result<void> broadcast();
    Result<void> all_to_all();
    Result<void> scatter() { return exchange(parts_of(operation_, group_.rank(), group_.size()), operation_.count); }
    Result<void> all_to_all_uneven();

  private:
    /// The first step compares signatures, later ones do not.
    Result<void> next_step() {
        if (met_) return group_.step(terms_);
        met_ = true;
        return group_.meet(operation_, false, terms_);
    }
    void copy_bytes(void* to, const void* from, std::size_t size_bytes) const {
        copy_with(group_.helpers(), to, from, size_bytes);
    }
    [[nodiscard]] std::size_t bytes(std::size_t elements) const { return elements * element_bytes_; }
    [[nodiscard]] const std::byte* input(std::size_t element) const {
        return static_cast<const std::byte*>(operation_.input) + bytes(element);
    }
    [[nodiscard]] std::byte* output(std::size_t element) const {
        return static_cast<std::byte*>(operation_.output) + bytes(element);
    }
    [[nodiscard]] std::size_t own_piece() const { return static_cast<std::size_t>(group_.rank()) * operation_.count; }
    /// Every rank's window, `elements` into it.
    [[nodiscard]] std::vector<void*> windows(std::size_t elements) const {
        std::vector<void*> places(ranks_);
        for (std::size_t rank = 0; rank < ranks_; ++rank) {
            places[rank] = group_.window(static_cast<int>(rank)) + bytes(elements);
        }
        return places;
    }
    static std::vector<void*> moved(std::vector<void*> places, std::size_t by_bytes) {
        for (auto& place : places) place = static_cast<std::byte*>(place) + by_bytes;
        return places;
    }
    void reduce_all(const std::vector<void*>& inputs, void* const* outputs, int output_count, std::size_t count);
    void reduce_for_all(const std::vector<void*>& inputs, const std::vector<void*>& outputs, std::size_t count);
    Result<void> move_pieces(std::size_t input_elements, std::size_t chunk, const auto& fill, const auto& take);
    Result<void> all_reduce_in_place(std::vector<void*> places);
    Result<void> all_reduce_windows();
    Result<void> exchange(const Parts& parts, std::size_t largest);
    [[nodiscard]] bool has_result() const {
        const bool to_root = operation_.kind == OperationKind::gather || operation_.kind == OperationKind::reduce;
        return !to_root || group_.rank() == operation_.peer;
    }

    SharedGroup& group_;
    const Operation& operation_;
    const RunTerms& terms_;
    const std::size_t element_bytes_;
    const std::size_t ranks_;
    bool met_ = false;
    bool weights_known_ = false;
    std::vector<double> weights_;
};

void Collective::reduce_all(const std::vector<void*>& inputs, void* const* outputs, int output_count,
                            std::size_t count) {
    if (multiplies(operation_.reduce) && !weights_known_) {
        weights_ = group_.weights();
        weights_known_ = true;
    }
    const Reduction whole{.type = operation_.type,
                          .reduce = operation_.reduce,
                          .inputs = inputs.data(),
                          .input_count = static_cast<int>(inputs.size()),
                          .outputs = outputs,
                          .output_count = output_count,
                          .count = count,
                          .weights = weights_.empty() ? nullptr : weights_.data()};
    const auto arrays = inputs.size() + static_cast<std::size_t>(output_count);
    group_.helpers().run(count, element_bytes_, arrays, [&](std::size_t begin, std::size_t end) {
        if (end - begin == count) return reduce(whole);
        const auto from = moved(inputs, bytes(begin));
        const auto to = moved({outputs, outputs + output_count}, bytes(begin));
        Reduction part = whole;
        part.inputs = from.data();
        part.outputs = to.data();
        part.count = end - begin;
        reduce(part);
    });
}

/// Both by rank: the result goes to all of `outputs`, or to the root's.
void Collective::reduce_for_all(const std::vector<void*>& inputs, const std::vector<void*>& outputs,
                                std::size_t count) {
    const bool to_root = operation_.kind == OperationKind::reduce;
    reduce_all(inputs, outputs.data() + (to_root ? operation_.peer : 0), to_root ? 1 : static_cast<int>(ranks_), count);
}

Result<void> Collective::all_reduce() {
    // Ranks choose alone what to do before they meet, and together afterwards, from what all of them have told.
    const std::size_t limit = group_.is_shared(operation_.input) ? small_in_place_bytes : small_bytes;
    const bool copied = bytes(operation_.count) <= limit;
    // Not so the turn of the windows: ranks that disagree about it would read each other's wrong halves from now on.
    group_.turn();
    if (copied) copy_bytes(group_.window(group_.rank()), operation_.input, bytes(operation_.count));
    MUSTER_TRY(group_.meet(operation_, copied, terms_));
    met_ = true;
    if (group_.all_copied()) {
        if (has_result()) reduce_all(windows(0), &const_cast<Operation&>(operation_).output, 1, operation_.count);
        return {};
    }
    auto places = MUSTER_TRY(group_.common_memory(bytes(operation_.count)));
    return places.empty() ? all_reduce_windows() : all_reduce_in_place(std::move(places));
}

Result<void> Collective::all_reduce_in_place(std::vector<void*> places) {
    const Slice slice = slice_of(operation_.count, element_bytes_, group_.rank(), group_.size());
    places = moved(std::move(places), bytes(slice.begin));
    reduce_for_all(places, places, slice.end - slice.begin);
    return next_step();
}

/// A rank reduces its slice between its own memory and the others' windows: only the rest is copied, there and back.
Result<void> Collective::all_reduce_windows() {
    const std::size_t chunk = window_bytes / element_bytes_;
    const auto rank = static_cast<std::size_t>(group_.rank());
    for (std::size_t done = 0; done < operation_.count; done += chunk) {
        const std::size_t count = std::min(chunk, operation_.count - done);
        const Slice slice = slice_of(count, element_bytes_, group_.rank(), group_.size());
        group_.turn();
        std::byte* const own = group_.window(group_.rank());
        copy_bytes(own, input(done), bytes(slice.begin));
        copy_bytes(own + bytes(slice.end), input(done + slice.end), bytes(count - slice.end));
        MUSTER_TRY(next_step());
        auto inputs = windows(slice.begin);
        auto outputs = inputs;
        inputs[rank] = const_cast<std::byte*>(input(done + slice.begin));
        if (has_result()) outputs[rank] = output(done + slice.begin);
        reduce_for_all(inputs, outputs, slice.end - slice.begin);
        MUSTER_TRY(next_step());
        if (!has_result()) continue;
        copy_bytes(output(done), own, bytes(slice.begin));
        copy_bytes(output(done + slice.end), own + bytes(slice.end), bytes(count - slice.end));
    }
    return {};
}

Result<void> Collective::reduce_scatter() {
    MUSTER_TRY(next_step());
    const auto places = MUSTER_TRY(group_.common_memory(bytes(ranks_ * operation_.count)));
    if (!places.empty()) {
        reduce_all(moved(places, bytes(own_piece())), &const_cast<Operation&>(operation_).output, 1, operation_.count);
        return next_step();
    }
    const std::size_t chunk = window_bytes / element_bytes_ / ranks_;
    for (std::size_t done = 0; done < operation_.count; done += chunk) {
        const std::size_t count = std::min(chunk, operation_.count - done);
        group_.turn();
        const auto own = static_cast<std::size_t>(group_.rank());
        for (std::size_t rank = 0; rank < ranks_; ++rank) {
            if (rank == own) continue;
            copy_bytes(group_.window(group_.rank()) + bytes(rank * count), input(rank * operation_.count + done),
                       bytes(count));
        }
        MUSTER_TRY(next_step());
        auto inputs = windows(own * count);
        inputs[own] = const_cast<std::byte*>(input(own_piece() + done));
        void* place = output(done);
        reduce_all(inputs, &place, 1, count);
    }
    return {};
}

/// Ranks take pieces of each other's input as they are, from where it lies if that is common memory, else from the
/// windows, `chunk` elements of each piece at a time. `fill` puts so many elements from `done` on into this rank's
/// window, and `take` gets the places of all ranks.
Result<void> Collective::move_pieces(std::size_t input_elements, std::size_t chunk, const auto& fill,
                                     const auto& take) {
    const auto part = [&](std::size_t done) { return std::min(chunk, operation_.count - done); };
    const bool copied = bytes(input_elements) <= small_in_place_bytes || !group_.is_shared(operation_.input);
    group_.turn();
    if (copied) fill(0, part(0));
    MUSTER_TRY(group_.meet(operation_, copied, terms_));
    met_ = true;
    if (!group_.all_copied()) {
        const auto places = MUSTER_TRY(group_.common_memory(bytes(input_elements)));
        if (!places.empty()) take(0, places, operation_.count);
        if (places.empty() && !copied) fill(0, part(0));
        MUSTER_TRY(next_step());
        if (!places.empty()) return {};
    }
    for (std::size_t done = 0;;) {
        take(done, windows(0), part(done));
        done += chunk;
        if (done >= operation_.count) return {};
        group_.turn();
        fill(done, part(done));
        MUSTER_TRY(next_step());
    }
}

Result<void> Collective::all_gather() {
    const std::byte* const own = input(0);
    const bool takes = has_result();
    if (takes && own != output(own_piece())) copy_bytes(output(own_piece()), own, bytes(operation_.count));
    const auto fill = [&](std::size_t done, std::size_t count) {
        copy_bytes(group_.window(group_.rank()), own + bytes(done), bytes(count));
    };
    const auto take = [&](std::size_t done, const std::vector<void*>& places, std::size_t count) {
        for (std::size_t rank = 0; rank < ranks_; ++rank) {
            if (takes && static_cast<int>(rank) != group_.rank())
                copy_bytes(output(rank * operation_.count + done), places[rank], bytes(count));
        }
    };
    return move_pieces(operation_.count, window_bytes / element_bytes_, fill, take);
}

Result<void> Collective::broadcast() {
    const std::size_t chunk = window_bytes / element_bytes_;
    const bool is_root = group_.rank() == operation_.peer;
    std::size_t done = 0;
    do {
        const std::size_t count = std::min(chunk, operation_.count - done);
        group_.turn();
        if (is_root) copy_bytes(group_.window(group_.rank()), input(done), bytes(count));
        MUSTER_TRY(next_step());
        if (!is_root) copy_bytes(output(done), group_.window(operation_.peer), bytes(count));
        done += chunk;
    } while (done < operation_.count);
    return {};
}

Result<void> Collective::all_to_all() {
    const auto fill = [&](std::size_t done, std::size_t count) {
        for (std::size_t rank = 0; rank < ranks_; ++rank) {
            copy_bytes(group_.window(group_.rank()) + bytes(rank * count), input(rank * operation_.count + done),
                       bytes(count));
        }
    };
    const auto take = [&](std::size_t done, const std::vector<void*>& places, std::size_t count) {
        const auto own = bytes(static_cast<std::size_t>(group_.rank()) * count);
        for (std::size_t rank = 0; rank < ranks_; ++rank) {
            const auto* const from = static_cast<const std::byte*>(places[rank]) + own;
            copy_bytes(output(rank * operation_.count + done), from, bytes(count));
        }
    };
    return move_pieces(ranks_ * operation_.count, window_bytes / element_bytes_ / ranks_, fill, take);
}

/// Parts of up to `largest` elements, through the windows: each rank's has a slot for every rank. What a rank has for
/// itself does not count in `largest`, and is copied at once.
Result<void> Collective::exchange(const Parts& parts, std::size_t largest) {
    const std::size_t slot = window_bytes / element_bytes_ / ranks_;
    const auto own = static_cast<std::size_t>(group_.rank());
    std::size_t done = 0;
    /// For each part that is not over: which rank's it is, where it goes on, and how many elements have a slot.
    const auto each = [&](const std::vector<Part>& all, const auto& copy) {
        for (std::size_t rank = 0; rank < ranks_; ++rank)
            if (rank != own && all[rank].count > done)
                copy(rank, all[rank].offset + done, std::min(slot, all[rank].count - done));
    };
    const Part &kept = parts.sent[own], &place = parts.expected[own];
    if (kept.count > 0 && input(kept.offset) != output(place.offset))
        copy_bytes(output(place.offset), input(kept.offset), bytes(kept.count));
    do {
        group_.turn();
        each(parts.sent, [&](std::size_t rank, std::size_t at, std::size_t count) {
            copy_bytes(group_.window(group_.rank()) + bytes(rank * slot), input(at), bytes(count));
        });
        MUSTER_TRY(next_step());
        each(parts.expected, [&](std::size_t rank, std::size_t at, std::size_t count) {
            copy_bytes(output(at), group_.window(static_cast<int>(rank)) + bytes(own * slot), bytes(count));
        });
        done += slot;
    } while (done < largest);
    return {};
}

Result<void> Collective::all_to_all_uneven() {
    PartsTable table(operation_, group_.rank(), group_.size());
    group_.turn();
    copy_bytes(group_.window(group_.rank()), table.own_row(), table.row_bytes());
    MUSTER_TRY(next_step());
    for (int rank = 0; rank < group_.size(); ++rank)
        if (rank != group_.rank()) copy_bytes(table.row(rank), group_.window(rank), table.row_bytes());
    if (const int rank = table.damaged(); rank >= 0) return group_.corrupted(rank, PartsTable::damage);
    if (auto text = table.contradiction([this](int rank) { return group_.who(rank); }); !text.empty())
        return contradiction_error(std::move(text));
    if (table.is_even()) {
        const std::size_t piece = operation_.parts->sent[0].count;
        const auto places = MUSTER_TRY(group_.common_memory(bytes(ranks_ * piece)));
        for (std::size_t rank = 0; rank < places.size(); ++rank) {
            const auto* const from = static_cast<const std::byte*>(places[rank]);
            if (piece > 0)
                copy_bytes(output(rank * piece), from + bytes(static_cast<std::size_t>(group_.rank()) * piece),
                           bytes(piece));
        }
        if (!places.empty()) return next_step();
    }
    return exchange(*operation_.parts, table.largest());
}

}  // namespace

Result<void> run_collective(SharedGroup& group, const Operation& given, const RunTerms& terms) {
    Operation operation = given;
    if (operation.kind == OperationKind::reduce && operation.peer == group.rank() &&
        operation.input != operation.output) {
        // The result replaces the root's elements, so they are where it goes.
        copy_with(group.helpers(), operation.output, operation.input, operation.count * size_of(operation.type));
        operation.input = operation.output;
    }
    Collective collective(group, operation, terms);
    switch (operation.kind) {
        case OperationKind::all_reduce:
        case OperationKind::reduce: return collective.all_reduce();
        case OperationKind::reduce_scatter: return collective.reduce_scatter();
        case OperationKind::all_gather:
        case OperationKind::gather: return collective.all_gather();
        case OperationKind::scatter: return collective.scatter();
        case OperationKind::all_to_all_uneven: return collective.all_to_all_uneven();
        case OperationKind::broadcast: return collective.broadcast();
        case OperationKind::all_to_all: return collective.all_to_all();
        case OperationKind::barrier:
        case OperationKind::send:
        case OperationKind::receive: break;
    }
    return collective.barrier();
}

}  // namespace muster::runtime
