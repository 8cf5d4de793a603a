// Who is to blame where ranks wait for each other in different ways: in communicators that were split off, and for
// messages. Rank 0 to 3, two on each node; one of them does nothing, and is the one to be named.
#include <memory>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/findings.h"
#include "tests/integration/runtime/named_ranks.h"
#include "tests/integration/runtime/tcp/tcp_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "worker_runtime/communicator/communicator_body.h"
#include "worker_runtime/context/make_transport.h"
#include "worker_runtime/transport/wait_board.h"

namespace muster {

using namespace runtime;
using test::Findings;

namespace {

struct Choices {
    TransportChoice root;
    TransportChoice part;  ///< of what is split off
};
constexpr Choices all_choices[] = {{TransportChoice::tcp, TransportChoice::tcp},
                                   {TransportChoice::tcp, TransportChoice::shared_memory},
                                   {TransportChoice::hierarchical, TransportChoice::shared_memory},
                                   {TransportChoice::hierarchical, TransportChoice::tcp}};

Communicator join(GroupTerms terms, const Choices& choices) {
    terms.waits = std::make_shared<WaitBoard>();
    terms.meeting_timeout = 60s;
    const auto watch = FdWatch::start().value();
    const auto make = [choices, watch, node = terms.rank / 2](const GroupTerms& group) {
        return make_transport(group, {.choice = group.is_part() ? choices.part : choices.root,
                                      .addresses = {"127.0.0.1"},
                                      .node = node,
                                      .watch = watch});
    };
    CommunicatorBody::Terms body{.group = terms, .timeout = 60s, .make_transport = make};
    auto transport = make(terms).value();
    return Communicator(std::make_shared<CommunicatorBody>(std::move(body), std::move(transport)));
}

/// What a rank does: fails at its deadline with the guilty rank's name, or waits until it is told.
using Does = std::function<Result<void>(Communicator& world, Communicator& pair, Duration limit)>;

constexpr Duration short_limit = 12s;
constexpr Duration long_limit = 60s;

struct Story {
    Choices choices;
    std::vector<Does> does;   ///< by rank
    std::set<int> who_fails;  ///< come to their deadline, and name ...
    int idle_rank;            ///< ... this one, which does nothing until they have
};

void play(const Story& story, const GroupTerms& terms, Findings& findings) {
    auto world = join(terms, story.choices);
    auto pair = std::move(world.split(terms.rank / 2, 0).value());
    std::vector<std::string> told;
    for (const int rank : story.who_fails) told.push_back(cat("told/", rank));
    const auto all_told = [&] { (void)terms.place->collect(told, test::within(60s).deadline); };
    if (terms.rank == story.idle_rank) return all_told();
    const auto about = cat("transports ", static_cast<int>(story.choices.root), " and ",
                           static_cast<int>(story.choices.part), ", rank ", terms.rank, ": ");
    const bool fails = story.who_fails.contains(terms.rank);
    const auto& does = story.does[static_cast<std::size_t>(terms.rank)];
    const auto done = does(world, *pair, fails ? short_limit : long_limit);
    findings.expect(done.has_error(), about + "no error");
    if (fails && done.has_error()) {
        const auto& text = done.error().context;
        findings.expect(test::named_in(text) == std::set{story.idle_rank}, about + text);
        findings.expect(done.error().code == Errc::timed_out, about + text);
    }
    if (fails) (void)terms.place->publish(cat("told/", terms.rank), "1", test::within(60s).deadline);
    all_told();  // those that wait for this one end only now
}

/// All at the same time: they mostly wait.
void require_named(const std::vector<Story>& stories) {
    Findings findings;
    std::vector<std::thread> threads;
    for (const auto& story : stories)
        threads.emplace_back([&findings, &story] {
            test::run_as_threads(4, [&](const GroupTerms& terms) { play(story, terms, findings); });
        });
    for (auto& thread : threads) thread.join();
    CHECK(findings.text() == "");
}

Result<void> meet(Communicator& communicator, Duration limit) {
    float value = 1;
    return communicator.run(all_reduce(buffer(std::span(&value, 1)), ReduceOp::sum), limit);
}
Result<void> in_world(Communicator& world, Communicator& /*pair*/, Duration limit) {
    return meet(world, limit);
}
Result<void> in_pair(Communicator& /*world*/, Communicator& pair, Duration limit) {
    return meet(pair, limit);
}

}  // namespace

TEST_CASE("who waits in a communicator that was split off is not blamed, but the rank that it waits for") {
    std::vector<Story> stories;
    for (const auto& choices : all_choices) {
        stories.push_back({choices, {in_world, in_world, in_pair, nullptr}, {0, 1}, 3});
        // That rank may be in the other communicator alone.
        stories.push_back({choices, {nullptr, in_world, in_pair, in_world}, {2}, 0});
    }
    require_named(stories);
}

TEST_CASE("who waits in memory for a message is not blamed, and asks at its deadline whom its peer waits for") {
    const Choices choices{TransportChoice::hierarchical, TransportChoice::shared_memory};
    const auto from_3 = [](Communicator& world, Communicator&, Duration limit) {
        std::int32_t value = 0;
        return world.run(receive(buffer(std::span(&value, 1)), 3), limit);
    };
    require_named({{choices, {in_world, in_world, from_3, nullptr}, {0, 1}, 3},
                   {choices, {nullptr, in_world, from_3, in_world}, {2}, 0}});
}

}  // namespace muster
