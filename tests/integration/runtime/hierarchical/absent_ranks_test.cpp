// Several ranks do not come to an operation: all that do come name every one of them, and nobody else.
#include <fcntl.h>

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/findings.h"
#include "tests/integration/runtime/hierarchical/node_ranks.h"
#include "tests/integration/runtime/named_ranks.h"
#include "tests/integration/runtime/tcp/tcp_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "worker_runtime/shared_memory/local_meeting.h"

namespace muster {

using namespace runtime;

namespace {

constexpr int size = 5;

struct Way {
    std::string name;
    std::function<std::unique_ptr<Transport>(const GroupTerms&)> join;
    bool only_all_reduce = false;  ///< the others go another way
};

const std::vector<Way>& ways() {
    static const std::vector<Way> all{
        {"shared memory",
         [](const GroupTerms& terms) {
             return make_transport(terms, {.choice = TransportChoice::shared_memory, .watch = FdWatch::start().value()})
                 .value();
         }},
        {"TCP", [](const GroupTerms& terms) { return test::join_over_tcp(terms); }},
        {"TCP from rank to rank",
         [](const GroupTerms& terms) { return test::join_over_tcp(terms, "127.0.0.1", 0, TcpAlgorithm::ring); }, true},
        {"nodes",
         [](const GroupTerms& terms) {
             return test::join_over_nodes(terms, {2, 3});
         }},
    };
    return all;
}

/// What a rank does with its part of `memory`: a small and a large one of each kind.
std::vector<Operation> operations(std::span<float> memory) {
    const std::size_t large = memory.size() / (2 * size);
    const auto own = [&](std::size_t count) { return buffer(memory.subspan(0, count)); };
    const auto rest = [&](std::size_t count) { return buffer(memory.subspan(memory.size() / 2, count)); };
    std::vector<Operation> all{barrier()};
    for (const std::size_t count : {std::size_t{10}, large}) {
        all.push_back(all_reduce(own(count), ReduceOp::sum));
        all.push_back(broadcast(own(count), 0));
        all.push_back(all_gather(own(count), rest(count * size)));
        all.push_back(reduce_scatter(own(count * size), rest(count), ReduceOp::sum));
        all.push_back(all_to_all(own(count * size), rest(count * size), size));
    }
    return all;
}

void stay_away(const Way& way, std::size_t number, const std::set<int>& absent, test::Findings& findings) {
    std::atomic<int> failed = 0;
    test::run_as_threads(size, [&](const GroupTerms& terms) {
        const auto world = way.join(terms);
        findings.expect(test::carry_out(*world, barrier()), "all are there");
        std::vector<float> memory(size * 20'000 * 2);
        const auto operation = operations(memory)[number];
        if (!absent.contains(terms.rank)) {
            const auto done = world->run(operation, test::within(12s));
            const auto about = cat(way.name, ", ", describe(operation), ", rank ", terms.rank, ": ");
            findings.expect(!done, about + "passed");
            if (!done) {
                const auto& text = done.error().context;
                findings.expect(test::named_in(text) == absent, about + text);
                findings.expect(text.find("did not reach it") != std::string::npos, about + text);
            }
            ++failed;
        }
        while (failed < size - static_cast<int>(absent.size())) std::this_thread::sleep_for(1ms);
    });
}

/// Ranks 2 and 4 tell the others who they are and then stay away: from the meeting, or from its first exchange.
void meet_without_two(bool absent_ones_connect, Duration patience, test::Findings& findings) {
    const std::set<int> absent{2, 4};
    const auto deadline = std::chrono::steady_clock::now() + patience;
    std::atomic<int> failed = 0;
    test::run_as_threads(size, [&](const GroupTerms& terms) {
        auto door = LocalDoor::open(terms.rank).value();
        const auto texts = exchange(terms, "identity", door.identity.encode(), no_deadline).value();
        std::vector<LocalIdentity> identities;
        for (const auto& text : texts) identities.push_back(LocalIdentity::decode(text).value());
        const bool is_absent = absent.contains(terms.rank);
        std::optional<Result<LocalMeeting>> meeting;
        if (!is_absent || absent_ones_connect)
            meeting = LocalMeeting::hold(terms.rank, std::move(door), std::move(identities), deadline);
        if (!is_absent) {
            const FileDescriptor own(::open("/dev/null", O_RDONLY | O_CLOEXEC));
            auto error = meeting->has_error() ? meeting->error() : Error{};
            if (*meeting) {
                const auto shared = (*meeting)->share(own, "", deadline);
                findings.expect(!shared, cat("rank ", terms.rank, " passed"));
                if (!shared) error = shared.error();
            }
            findings.expect(test::named_in(error.context) == absent && error.code == Errc::timed_out,
                            cat("rank ", terms.rank, ": ", error.context));
            // The leader's sockets close here, however late the others read.
            meeting.reset();
            ++failed;
        }
        while (failed < size - static_cast<int>(absent.size())) std::this_thread::sleep_for(1ms);
    });
}

}  // namespace

TEST_CASE("the ranks of a host that do not meet there are all named, to everybody who came") {
    test::Findings findings;
    meet_without_two(false, 12s, findings);
    meet_without_two(true, 12s, findings);
    CHECK(findings.text() == "");
}

TEST_CASE("whoever does not come is named, and nobody else, in every operation and over every transport") {
    test::Findings findings;
    std::vector<float> scratch(size * 20'000 * 2);
    std::vector<std::thread> threads;
    const auto all = operations(scratch);
    for (const auto& way : ways())
        for (std::size_t number = 0; number < all.size(); ++number) {
            if (way.only_all_reduce && all[number].kind != OperationKind::all_reduce) continue;
            // The root of a broadcast among them, and not.
            threads.emplace_back([&, number] {
                stay_away(way, number, number % 2 == 0 ? std::set{0, 3} : std::set{1, 3}, findings);
            });
        }
    for (auto& thread : threads) thread.join();
    CHECK(findings.text() == "");
}

}  // namespace muster
