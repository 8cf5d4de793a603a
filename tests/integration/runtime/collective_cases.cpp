#include "tests/integration/runtime/collective_cases.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "rendezvous/base/text/text.h"

namespace muster::test {

namespace {

/// So many elements are drawn; a longer array repeats them. It is a prime, so no two windows or pieces are alike.
constexpr std::size_t drawn_elements = 8'191;

/// What an output is full of before an operation.
constexpr unsigned char not_written = 0xee;

/// Any bits are good integers; floats get ordinary numbers whose sums round, and now and then a NaN.
Bytes random_array(DataType type, std::size_t count, std::mt19937& random) {
    if (count > drawn_elements) {
        Bytes bytes = random_array(type, drawn_elements, random);
        const std::size_t period = bytes.size();
        bytes.resize(count * size_of(type));
        for (std::size_t at = period; at < bytes.size(); at += period)
            std::copy_n(bytes.begin(), std::min(period, bytes.size() - at),
                        bytes.begin() + static_cast<std::ptrdiff_t>(at));
        return bytes;
    }
    Bytes bytes(count * size_of(type));
    if (!is_floating(type)) {
        for (std::size_t i = 0; i < bytes.size(); i += sizeof(std::uint32_t)) {
            const auto word = static_cast<std::uint32_t>(random());
            std::memcpy(bytes.data() + i, &word, std::min(sizeof word, bytes.size() - i));
        }
        return bytes;
    }
    for (std::size_t i = 0; i < count; ++i) {
        const auto drawn = random();
        const float value = drawn % 997 == 0 ? NAN : static_cast<float>(drawn) * 1e-7f - 200.0f;
        if (type == DataType::f64) write(bytes, i, static_cast<double>(value) * 1.000000001);
        if (type == DataType::f32) write(bytes, i, value);
        if (type == DataType::f16) write(bytes, i, binary16.encode(value));
        if (type == DataType::bf16) write(bytes, i, bfloat16.encode(value));
    }
    return bytes;
}

Bytes piece_of(const Bytes& whole, int piece, std::size_t bytes) {
    const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(piece) * bytes);
    return {begin, begin + static_cast<std::ptrdiff_t>(bytes)};
}

class CaseMaker {
  public:
    CaseMaker(int size, DataType type, std::size_t count, std::uint32_t seed)
        : size_(size), type_(type), count_(count), random_(seed) {}

    CollectiveCase all_reduce(ReduceOp reduce, bool weighted) {
        CollectiveCase one = start(OperationKind::all_reduce, count_);
        one.operation.reduce = reduce;
        if (weighted) one.weights = weights_for(reduce);
        one.expected.assign(ranks(), reference(type_, reduce, one.inputs, one.weights));
        return one;
    }

    CollectiveCase reduce_scatter(ReduceOp reduce, bool weighted, bool in_place) {
        CollectiveCase one = start_pieces(OperationKind::reduce_scatter, ranks());
        one.operation.reduce = reduce;
        if (weighted) one.weights = weights_for(reduce);
        one.in_place = in_place;
        const Bytes whole = reference(type_, reduce, one.inputs, one.weights);
        for (int rank = 0; rank < size_; ++rank)
            one.expected.push_back(piece_of(whole, rank, piece_count() * size_of(type_)));
        return one;
    }

    CollectiveCase all_gather(bool in_place) {
        CollectiveCase one = start_pieces(OperationKind::all_gather, 1);
        one.in_place = in_place;
        Bytes whole;
        for (const auto& input : one.inputs) whole.insert(whole.end(), input.begin(), input.end());
        one.expected.assign(ranks(), whole);
        return one;
    }

    CollectiveCase all_to_all() {
        CollectiveCase one = start_pieces(OperationKind::all_to_all, ranks());
        for (int rank = 0; rank < size_; ++rank) {
            Bytes mine;
            for (const auto& input : one.inputs) {
                const auto piece = piece_of(input, rank, piece_count() * size_of(type_));
                mine.insert(mine.end(), piece.begin(), piece.end());
            }
            one.expected.push_back(std::move(mine));
        }
        return one;
    }

    CollectiveCase broadcast() {
        CollectiveCase one = start(OperationKind::broadcast, count_);
        one.operation.peer = any_rank();
        one.expected.assign(ranks(), one.inputs[static_cast<std::size_t>(one.operation.peer)]);
        return one;
    }

    CollectiveCase gather(bool in_place) {
        CollectiveCase one = start_pieces(OperationKind::gather, 1);
        one.in_place = in_place;
        one.operation.peer = any_rank();
        one.expected.resize(ranks());
        Bytes& whole = one.expected[static_cast<std::size_t>(one.operation.peer)];
        for (const auto& input : one.inputs) whole.insert(whole.end(), input.begin(), input.end());
        return one;
    }

    CollectiveCase scatter(bool in_place) {
        CollectiveCase one = start_pieces(OperationKind::scatter, ranks());
        one.in_place = in_place;
        one.operation.peer = size_ - 1;
        for (int rank = 0; rank < size_; ++rank) {
            one.expected.push_back(piece_of(one.inputs.back(), rank, piece_count() * size_of(type_)));
            if (rank != size_ - 1) one.inputs[static_cast<std::size_t>(rank)].clear();
        }
        return one;
    }

    CollectiveCase reduce(ReduceOp reduce, bool weighted, bool in_place) {
        CollectiveCase one = start(OperationKind::reduce, count_);
        if (weighted) one.weights = weights_for(reduce);
        one.in_place = in_place;
        one.operation.reduce = reduce;
        one.operation.peer = any_rank();
        one.expected.resize(ranks());
        one.expected[static_cast<std::size_t>(one.operation.peer)] = reference(type_, reduce, one.inputs, one.weights);
        return one;
    }

    CollectiveCase all_to_all_uneven() {
        const auto count_between = [&](int from, int to) {
            const auto kind = static_cast<std::size_t>(3 * from + 2 * to);
            return from != to && kind % 3 == 1 ? 0 : piece_count() * (kind % 4 + 1) / 3;
        };
        const std::size_t element = size_of(type_);
        CollectiveCase one = start(OperationKind::all_to_all_uneven, 0);
        one.operation.count = 0;
        std::vector<Parts> parts(ranks());
        for (int rank = 0; rank < size_; ++rank) {
            const auto own = static_cast<std::size_t>(rank);
            std::size_t sent = 0, taken = 0;
            parts[own].expected.resize(ranks());
            for (int peer = 0; peer < size_; ++peer) {
                parts[own].sent.push_back({count_between(rank, peer), sent});
                sent += count_between(rank, peer) + 2;
                const int from = size_ - 1 - peer;
                parts[own].expected[static_cast<std::size_t>(from)] = {count_between(from, rank), taken};
                taken += count_between(from, rank) + 1;
            }
            one.inputs[own] = random_array(type_, sent, random_);
            one.expected.emplace_back(taken * element, not_written);
        }
        for (std::size_t from = 0; from < ranks(); ++from) {
            for (std::size_t to = 0; to < ranks(); ++to) {
                const auto begin =
                    one.inputs[from].begin() + static_cast<std::ptrdiff_t>(parts[from].sent[to].offset * element);
                std::copy_n(
                    begin, parts[from].sent[to].count * element,
                    one.expected[to].begin() + static_cast<std::ptrdiff_t>(parts[to].expected[from].offset * element));
            }
            one.parts.push_back(std::make_shared<const Parts>(parts[from]));
        }
        return one;
    }

  private:
    [[nodiscard]] int any_rank() { return static_cast<int>(random_() % ranks()); }
    /// No float has the value of such a factor.
    [[nodiscard]] std::vector<double> weights_for(ReduceOp reduce) const {
        std::vector<double> weights;
        for (int rank = 0; rank < size_; ++rank)
            weights.push_back(reduce == ReduceOp::premul_sum ? 1.0 / (rank + 3) - 0.3 : rank * 1.5);
        return weights;
    }

    [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(size_); }

    /// So that the whole has about `count` elements.
    [[nodiscard]] std::size_t piece_count() const { return (count_ + ranks() - 1) / ranks(); }

    CollectiveCase start_pieces(OperationKind kind, std::size_t input_pieces) {
        CollectiveCase one = start(kind, piece_count() * input_pieces);
        one.operation.count = piece_count();
        return one;
    }

    CollectiveCase start(OperationKind kind, std::size_t input_count) {
        CollectiveCase one;
        one.operation = {.kind = kind, .type = type_, .count = count_, .tag = static_cast<std::uint32_t>(random_())};
        for (int rank = 0; rank < size_; ++rank) one.inputs.push_back(random_array(type_, input_count, random_));
        return one;
    }

    int size_;
    DataType type_;
    std::size_t count_;
    std::mt19937 random_;
};

}  // namespace

std::string CollectiveCase::text() const {
    return cat(describe(operation), weights.empty() ? "" : " weighted", in_place ? " in place" : "");
}

std::vector<CollectiveCase> collective_cases(int size, DataType type, std::size_t count, std::uint32_t seed,
                                             std::span<const ReduceOp> reductions) {
    CaseMaker make(size, type, count, seed);
    const bool in_place = seed % 2 == 0;
    std::vector<CollectiveCase> cases{make.all_gather(in_place), make.all_to_all(),       make.broadcast(),
                                      make.gather(in_place),     make.scatter(!in_place), make.all_to_all_uneven()};
    for (const auto reduce : reductions) {
        if (!has(type, reduce)) continue;
        const bool premul = reduce == ReduceOp::premul_sum;
        const bool weighted = premul || (reduce == ReduceOp::avg && in_place);
        cases.push_back(make.all_reduce(reduce, weighted));
        cases.push_back(make.reduce(reduce, weighted, in_place));
        cases.push_back(make.reduce_scatter(reduce, premul, reduce == ReduceOp::sum));
    }
    return cases;
}

std::string fault_in(const CollectiveCase& one, int rank,
                     const std::function<Result<void>(const Operation&)>& carry_out) {
    const auto own = static_cast<std::size_t>(rank);
    Bytes input = one.inputs[own];
    Bytes output(one.expected[own].size(), not_written);
    const std::size_t piece_at = own * one.operation.count * size_of(one.operation.type);
    Operation operation = one.operation;
    operation.weighted = !one.weights.empty();
    if (operation.weighted) operation.weight = one.weights[own];
    if (!one.parts.empty()) operation.parts = one.parts[own];
    const bool whole_is_input =
        operation.kind == OperationKind::reduce_scatter || operation.kind == OperationKind::scatter;
    const bool in_place = one.in_place && (!has_root(operation.kind) || operation.peer == rank);
    const bool is_one_memory = operation.kind == OperationKind::all_reduce ||
                               operation.kind == OperationKind::broadcast ||
                               (operation.kind == OperationKind::reduce && in_place);
    Bytes* result = &output;
    operation.input = input.empty() ? nullptr : input.data();
    operation.output = output.empty() ? nullptr : output.data();
    if (is_one_memory) {
        operation.output = input.data();
        result = &input;
    } else if (in_place && whole_is_input) {
        operation.output = input.data() + piece_at;
        result = &input;
    } else if (in_place) {
        if (!input.empty()) std::memcpy(output.data() + piece_at, input.data(), input.size());
        operation.input = output.data() + piece_at;
    }
    const auto done = carry_out(operation);
    if (!done) return cat("rank ", rank, ", ", one.text(), ": ", done.error().context);
    if (result != &input && input != one.inputs[own])
        return cat("rank ", rank, ", ", one.text(), ": its input was changed");
    const Bytes found = in_place && whole_is_input ? piece_of(*result, rank, one.expected[own].size()) : *result;
    if (found == one.expected[own]) return {};
    std::size_t first = 0;
    while (found[first] == one.expected[own][first]) ++first;
    return cat("rank ", rank, ", ", one.text(), ": wrong from element ", first / size_of(operation.type), " on");
}

Operation uneven_pair(const void* input, void* output, std::size_t sent, std::size_t expected) {
    const auto row = [](std::size_t count) { return parts_in_a_row(std::vector(2, count)); };
    return all_to_all_uneven(input, output, DataType::f32, {row(sent), row(expected)});
}

std::string fault_in_messages(int size, int rank, DataType type, std::size_t count,
                              const std::function<Result<void>(const Operation&)>& carry_out) {
    const auto sent_by = [&](int sender) {
        std::mt19937 random(static_cast<std::uint32_t>(sender + 1));
        return random_array(type, count, random);
    };
    const int next = (rank + 1) % size;
    const int before = (rank + size - 1) % size;
    const Bytes out = sent_by(rank);
    Bytes in(out.size(), 0xee);
    Result<void> sent;
    std::thread sender([&] { sent = carry_out(send({out.data(), count, type}, next)); });
    const auto received = carry_out(receive({.data = in.data(), .count = count, .type = type}, before));
    sender.join();
    const auto what = cat("rank ", rank, ", message of ", name(type), " x ", count, ": ");
    if (!sent) return cat(what, sent.error().context);
    if (!received) return cat(what, received.error().context);
    return in == sent_by(before) ? std::string() : cat(what, "wrong elements from rank ", before);
}

}  // namespace muster::test
