// A rank leaves nonsense in the memory that the ranks of a host share: all ranks learn whose entry it is, and nobody
// follows it.
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/findings.h"
#include "tests/integration/runtime/shared_group.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "worker_runtime/shared_memory/host_memory.h"
#include "worker_runtime/shared_memory/shared_channel.h"
#include "worker_runtime/shared_memory/shared_collectives.h"
#include "worker_runtime/shared_memory/shared_group.h"

namespace muster {

using namespace runtime;

namespace {

constexpr int size = 3;
constexpr int culprit = 0;  // the rank whose place the others compare theirs with
constexpr std::size_t count = 50'000;
constexpr std::size_t memory_bytes = size * count * sizeof(float);

RunTerms terms_now() {
    return {.deadline = std::chrono::steady_clock::now() + 60s, .patience = WaitMode::frugal};
}

/// As shared_layout.h has it: the lines of the ranks lie before the channels.
RankLine* lines_of(SharedGroup& group) {
    return reinterpret_cast<RankLine*>(&group.channel(0, 0)) - group.size();
}

struct Damage {
    std::string name;
    std::function<void(Signature&)> apply;
    bool everywhere = false;  ///< a stray write that hits the entries of all ranks
};

const std::vector<Damage>& damages() {
    static const std::vector<Damage> all{
        {"no such region", [](Signature& entry) { entry.region = 7; }},
        {"no such region, for all", [](Signature& entry) { entry.region = 1u << 20; }, true},
        {"behind the end", [](Signature& entry) { entry.offset = memory_bytes; }},
        {"far behind the end, for all", [](Signature& entry) { entry.offset = std::uint64_t{1} << 40; }, true},
        {"wraps around, for all", [](Signature& entry) { entry.offset = ~std::uint64_t{0} - 63; }, true},
        {"no such type", [](Signature& entry) { entry.type = static_cast<DataType>(200); }},
        {"the number of bool, which is none of the types",
         [](Signature& entry) { entry.type = static_cast<DataType>(7); }},
        {"no such operation", [](Signature& entry) { entry.kind = static_cast<OperationKind>(200); }},
        {"no such reduction", [](Signature& entry) { entry.reduce = static_cast<ReduceOp>(99); }},
    };
    return all;
}

Operation operation_on(OperationKind kind, std::byte* data, std::byte* output, int rank) {
    Operation operation{.kind = kind, .type = DataType::f32, .reduce = ReduceOp::sum, .input = data, .count = count};
    operation.output = kind == OperationKind::all_reduce ? data : output;
    if (kind == OperationKind::all_gather) {
        operation.input = data + static_cast<std::size_t>(rank) * count * sizeof(float);
        operation.output = data;
    }
    return operation;
}

/// Does what meet() does, with a damaged entry.
void sign_wrongly(SharedGroup& group, const Operation& operation, const Damage& damage) {
    auto* const lines = lines_of(group);
    constexpr std::uint64_t number = 2;  // after one operation, such as allocate()
    const auto own_steps = steps_of(lines[group.rank()].step);
    for (int rank = 0; rank < size; ++rank) {
        if (rank != group.rank())
            (void)await_step(lines[rank].step, own_steps + 1, {.pauses = 0, .yields = 1}, terms_now().deadline);
    }
    for (int rank = 0; rank < size; ++rank) {
        auto& entry = lines[rank].signatures[number & 1];
        if (rank == group.rank()) entry = lines[(rank + 1) % size].signatures[number & 1];
        if (rank != group.rank() && !damage.everywhere) continue;
        damage.apply(entry);
    }
    auto& own = lines[group.rank()].signatures[number & 1];
    if (operation.kind == OperationKind::all_gather && own.offset == count * sizeof(float)) own.offset = 0;
    (void)publish_step(lines[group.rank()].step);
}

void expect_named(const Result<void>& done, const std::string& about, test::Findings& findings) {
    if (done) return findings.expect(false, about + ": passed");
    findings.expect(done.error().code == Errc::bad_frame, cat(about, ": ", describe(done.error())));
    findings.expect(done.error().context.find(cat("rank ", culprit, " (pid ")) != std::string::npos,
                    cat(about, ": ", done.error().context));
}

}  // namespace

TEST_CASE("an entry that points nowhere ends the group on all ranks, and names whose it is") {
    test::Findings findings;
    for (const auto kind : {OperationKind::all_reduce, OperationKind::reduce_scatter, OperationKind::all_gather,
                            OperationKind::all_to_all}) {
        for (const auto& damage : damages()) {
            test::run_as_threads(size, [&](const GroupTerms& terms) {
                const auto group = test::form_shared_group(terms);
                const auto limit = terms_now();
                const auto memory = group->allocate(memory_bytes, limit).value();
                std::vector<std::byte> output(memory_bytes);
                const auto operation = operation_on(kind, memory.data(), output.data(), terms.rank);
                const auto about = cat(name(kind), ", ", damage.name, ", rank ", terms.rank);
                if (terms.rank != culprit) {
                    expect_named(run_collective(*group, operation, limit), about, findings);
                    return;
                }
                sign_wrongly(*group, operation, damage);
                StepWord& others = lines_of(*group)[1].step;
                (void)await_step(others, steps_of(others) + 10, {.pauses = 0, .yields = 1}, limit.deadline);
                expect_named(group->check_alive(), about, findings);
            });
        }
    }
    CHECK(findings.text() == "");
}

TEST_CASE(
    "an entry that points outside of the memory that a rank lends ends the group on all ranks, and names whose it is") {
    test::Findings findings;
    for (const auto wrong : {std::uint64_t{1} << 40, ~std::uint64_t{0} - 63}) {
        test::run_as_threads(size, [&](const GroupTerms& terms) {
            const auto group = test::form_shared_group(terms);
            const auto limit = terms_now();
            auto* const data = HostMemory::of_process().allocate(count * sizeof(float)).value();
            std::memset(data, 0, count * sizeof(float));
            const auto region = HostMemory::of_process().find(data).region;
            const Damage damage{"lent", [&](Signature& entry) {
                                    entry.region = region;  // its own, which the others have mapped
                                    entry.offset = wrong;
                                }};
            const auto operation = operation_on(OperationKind::all_reduce, data, nullptr, terms.rank);
            const auto about = cat(damage.name, " at ", wrong, ", rank ", terms.rank);
            findings.expect(run_collective(*group, operation, limit).has_value(), cat(about, ": the one before"));
            if (terms.rank == culprit) {
                sign_wrongly(*group, operation, damage);
                StepWord& others = lines_of(*group)[1].step;
                (void)await_step(others, steps_of(others) + 10, {.pauses = 0, .yields = 1}, limit.deadline);
            }
            expect_named(terms.rank == culprit ? group->check_alive() : run_collective(*group, operation, limit), about,
                         findings);
            HostMemory::of_process().release(data);
        });
    }
    CHECK(findings.text() == "");
}

TEST_CASE("an operation on more bytes than the common memory has ends the group") {
    test::Findings findings;
    test::run_as_threads(size, [&](const GroupTerms& terms) {
        const auto group = test::form_shared_group(terms);
        const auto limit = terms_now();
        const auto memory = group->allocate(memory_bytes, limit).value();
        auto operation = operation_on(OperationKind::all_reduce, memory.data(), nullptr, terms.rank);
        operation.count = memory_bytes;  // four times as many
        expect_named(run_collective(*group, operation, limit), cat("rank ", terms.rank), findings);
    });
    CHECK(findings.text() == "");
}

TEST_CASE("a count that no rank can have meant ends an uneven exchange on all ranks, and names whose it is") {
    for (const std::size_t wrong : {std::size_t{1} << 61, ~std::size_t{0}}) {
        test::Findings findings;
        test::run_as_threads(size, [&](const GroupTerms& terms) {
            const auto group = test::form_shared_group(terms);
            Parts parts{.sent = std::vector<Part>(size), .expected = std::vector<Part>(size)};
            // Of what it sends to itself: nobody contradicts it.
            if (terms.rank == culprit) parts.sent[culprit].count = parts.expected[culprit].count = wrong;
            const auto operation = all_to_all_uneven(nullptr, nullptr, DataType::f64, std::move(parts));
            expect_named(run_collective(*group, operation, terms_now()), cat("rank ", terms.rank), findings);
        });
        CHECK(findings.text() == "");
    }
}

TEST_CASE("a slot of a message that has another length or no known type ends the group, and names the sender") {
    struct Damage {
        std::uint32_t slot_bytes;
        DataType type = DataType::u8;
    };
    for (const auto damage : {Damage{0}, Damage{100'000}, Damage{~0u}, Damage{4096, static_cast<DataType>(200)},
                              Damage{4096, static_cast<DataType>(7)}}) {
        test::Findings findings;
        test::run_as_threads(2, [&](const GroupTerms& terms) {
            const auto group = test::form_shared_group(terms);
            const auto limit = terms_now();
            std::vector<std::byte> data(1u << 20);
            const Operation receipt{.kind = OperationKind::receive,
                                    .type = DataType::u8,
                                    .output = data.data(),
                                    .count = data.size(),
                                    .peer = culprit};
            if (terms.rank != culprit) {
                SharedChannel channel(*group, culprit, terms.rank);
                return expect_named(channel.receive(receipt, limit), "the receiver", findings);
            }
            const SlotHead head{.message_bytes = data.size(),
                                .message_count = data.size(),
                                .slot_bytes = damage.slot_bytes,
                                .type = damage.type};
            std::memcpy(group->channel_slot(culprit, 1, 0), &head, sizeof head);
            (void)publish_step(group->channel(culprit, 1).filled);
            auto& emptied = group->channel(culprit, 1).emptied;
            (void)await_step(emptied, 1, {.pauses = 0, .yields = 1}, limit.deadline);
            expect_named(group->check_alive(), "the sender", findings);
        });
        CHECK(findings.text() == "");
    }
}

}  // namespace muster
