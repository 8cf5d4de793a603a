// Groups of more ranks than a whole mesh has, ranks as processes: one is killed or stopped, and all others learn which,
// whether they are its partners or not.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <random>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/tcp/tcp_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace muster {

using namespace runtime;
using test::join_over_tcp;

namespace {

constexpr int size = 44;
constexpr int victim = 17;

/// What a rank does until it fails.
using Once = std::function<Result<void>(Transport&, int rank)>;

std::vector<std::string> keys(const std::string& what) {
    std::vector<std::string> all;
    for (int rank = 0; rank < size; ++rank) all.push_back(cat(what, "/", rank));
    return all;
}

int judge(int rank, const Error& error, const std::vector<std::string>& words) {
    for (const auto& word : words) {
        if (error.context.find(word) != std::string::npos) continue;
        std::fprintf(stderr, "rank %d: %s\n", rank, error.context.c_str());
        return 1;
    }
    return 0;
}

/// Sends `signal` to the victim while all go round. Survivors must fail with `words` within `limit` of it.
void require_told(const Once& once, std::uint32_t seed, int signal, Duration limit,
                  const std::vector<std::string>& words, TcpAlgorithm algorithm = TcpAlgorithm::automatic) {
    std::mt19937 random(seed);
    test::RankProcesses ranks(size, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms, "127.0.0.1", 0, algorithm);
        if (!test::all_come(terms, "formed")) return 3;
        if (terms.place->publish(cat("ready/", terms.rank), "1", no_deadline).has_error()) return 3;
        Result<void> done;
        while (done) done = once(*world, terms.rank);
        return judge(terms.rank, done.error(), words);
    });
    test::MeetingInFolder place(ranks.file(""));
    REQUIRE(place.collect(keys("ready"), test::within(60s).deadline).has_value());
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));  // the moment is what is drawn
    const auto sent = std::chrono::steady_clock::now();
    ::kill(ranks.pid(victim), signal);
    for (int rank = 0; rank < size; ++rank)
        while (rank != victim && !ranks.ended(rank) && std::chrono::steady_clock::now() < sent + limit)
            std::this_thread::sleep_for(1ms);
    const auto took = std::chrono::steady_clock::now() - sent;
    ::kill(ranks.pid(victim), SIGKILL);
    const auto ends = ranks.join();
    INFO("seed " << seed << ", " << std::chrono::duration<double>(took).count() << " s");
    CHECK(took < limit);
    for (int rank = 0; rank < size; ++rank) {
        INFO("rank " << rank);
        if (rank != victim)
            CHECK((ends[static_cast<std::size_t>(rank)].exited && ends[static_cast<std::size_t>(rank)].code == 0));
    }
}

/// Each kind of operation, with `limit` for each of them.
std::vector<Once> operations(Duration limit) {
    static std::vector<float> data(size * 2'000), other(size * 2'000), large(500'000);
    const auto piece = buffer(std::span(data.data(), 2'000));
    const ConstBuffer wide(data.data(), data.size(), DataType::f32);
    const auto out = buffer(std::span(other));
    const auto always = [limit](const Operation& operation) {
        return [limit, operation](Transport& world, int) { return world.run(operation, test::within(limit)); };
    };
    return {
        always(barrier()),
        always(all_reduce(buffer(std::span(data.data(), 50)), ReduceOp::sum)),
        always(all_reduce(buffer(std::span(large)), ReduceOp::avg)),
        always(reduce_scatter(wide, buffer(std::span(other.data(), 2'000)), ReduceOp::max)),
        always(all_gather(piece, out)),
        always(broadcast(buffer(std::span(large)), 3)),
        always(all_to_all(wide, out, size)),
        [limit, piece](Transport& world, int rank) {
            // No partners: each waits for the rank three before it, and news come over others.
            static std::vector<float> from(2'000);
            Result<void> sent;
            std::thread sender([&] { sent = world.transfer(send(piece, (rank + 3) % size), test::within(limit)); });
            const auto got =
                world.transfer(receive(buffer(std::span(from)), (rank + size - 3) % size), test::within(limit));
            sender.join();
            return got ? sent : got;
        },
    };
}

}  // namespace

TEST_CASE("all survivors of a rank of a large group name it, whatever they were doing") {
    std::uint32_t seed = 0;
    for (const auto& once : operations(60s)) require_told(once, ++seed, SIGKILL, 40s, {"rank 17 (pid "});
    require_told(operations(60s)[2], ++seed, SIGKILL, 40s, {"rank 17 (pid "}, TcpAlgorithm::ring);
}

TEST_CASE("a stopped rank of a large group is named at the deadline, also by those who wait for others") {
    std::uint32_t seed = 100;
    for (const auto& once : operations(6s)) require_told(once, ++seed, SIGSTOP, 60s, {"rank 17 (pid ", "timed out"});
}

TEST_CASE("news of a death reach a rank that waits for another one, while all others compute") {
    const auto once = [](Transport& world, int rank) {
        float value = 0;
        if (rank == 5) return world.transfer(receive({&value, 1, DataType::f32}, 8), test::within(60s));
        // They look at nothing, but their process passes on what it hears.
        for (const auto began = std::chrono::steady_clock::now();;) {
            std::this_thread::sleep_for(1ms);
            if (auto well = world.check_alive(began); !well) return well;
        }
    };
    require_told(once, 200, SIGKILL, 40s, {"rank 17 (pid ", "died"});
}

TEST_CASE("a rank that comes after a large group has given up fails in that very operation") {
    test::RankProcesses ranks(size, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms);
        if (!test::all_come(terms, "formed")) return 3;
        if (terms.rank == victim) {
            auto others = keys("told");
            others.erase(others.begin() + victim);
            if (!terms.place->collect(others, test::within(60s).deadline)) return 3;
        }
        const auto done = world->run(barrier(), test::within(terms.rank == victim ? Duration(60s) : Duration(5s)));
        if (terms.place->publish(cat("told/", terms.rank), "1", no_deadline).has_error()) return 3;
        // Until the late one has looked: who leaves is another failure.
        if (terms.rank != victim && !terms.place->collect({cat("told/", victim)}, test::within(60s).deadline)) return 3;
        return done ? 4 : judge(terms.rank, done.error(), {"operation 1 (barrier)", "rank 17 (pid ", "timed out"});
    });
    const auto ends = ranks.join();
    for (const auto& end : ends) CHECK((end.exited && end.code == 0));
}

TEST_CASE("a rank that dies while a large group forms is named by all") {
    for (int i = 0; i < 5; ++i) {
        test::RankProcesses ranks(size, [&](const GroupTerms& given) {
            GroupTerms terms = given;
            terms.meeting_timeout = 60s;
            const auto world = make_tcp_transport(terms, {.addresses = {"127.0.0.1"}});
            // Those who were quick have a group, and lose it.
            Result<void> done = world ? Result<void>() : world.error();
            while (done) done = (*world)->run(barrier(), test::within(60s));
            return judge(terms.rank, done.error(), {"rank 17 (pid "});
        });
        test::MeetingInFolder place(ranks.file(""));
        REQUIRE(place.collect({"world/tcp/17"}, test::within(60s).deadline).has_value());
        std::this_thread::sleep_for(std::chrono::milliseconds(i * 10));  // the moment is what is drawn
        ::kill(ranks.pid(victim), SIGKILL);
        const auto ends = ranks.join(std::chrono::seconds(90));
        for (int rank = 0; rank < size; ++rank) {
            INFO("rank " << rank << ", run " << i);
            if (rank != victim)
                CHECK((ends[static_cast<std::size_t>(rank)].exited && ends[static_cast<std::size_t>(rank)].code == 0));
        }
    }
}

}  // namespace muster
