// Shared memory end to end: ranks as threads for what they compute, as processes for what happens when one is gone.
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>

#include "rendezvous/base/kernel/available_memory.h"
#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/collective_cases.h"
#include "tests/integration/runtime/findings.h"
#include "tests/integration/runtime/shared_group.h"
#include "tests/support/catch.h"
#include "tests/support/own_process.h"
#include "tests/support/ranks.h"
#include "worker_runtime/shared_memory/step_word.h"
#include "worker_runtime/transport/alone_transport.h"

namespace muster {

using namespace runtime;
using test::Findings;
using test::run_as_threads;

namespace {

/// Rank r's element i: small whole numbers, exact in every type.
float element(int rank, std::size_t i) {
    return static_cast<float>((static_cast<std::size_t>(rank) * 7 + i) % 5);
}

std::vector<float> elements(int rank, std::size_t count, std::size_t from = 0) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = element(rank, from + i);
    return values;
}

float sum_over(int size, std::size_t i) {
    float sum = 0;
    for (int rank = 0; rank < size; ++rank) sum += element(rank, i);
    return sum;
}

}  // namespace

TEST_CASE("an all_reduce in place has the bits of one through windows, whatever the layout") {
    for (const int size : {2, 3, 4}) {
        Findings findings;
        run_as_threads(size, [&](const GroupTerms& terms) {
            auto world = test::join_shared_group(terms);
            constexpr std::size_t count = 100'003;
            std::vector<float> values(count);
            std::uint32_t state = 12345u + static_cast<std::uint32_t>(terms.rank);
            for (auto& value : values) {
                state = state * 1664525u + 1013904223u;
                value = static_cast<float>(state) / 1e9f - 2.1f;
            }
            auto memory = world.allocate(count * sizeof(float) + 64).value();
            auto whole = values;
            findings.expect(world.run(all_reduce(buffer(std::span(whole)), ReduceOp::avg)), "whole");
            auto* const in_place = reinterpret_cast<float*>(memory.data()) + 3;
            std::copy(values.begin(), values.end(), in_place);
            findings.expect(world.run(all_reduce(buffer(std::span(in_place, count)), ReduceOp::avg)), "in place");
            findings.expect(std::memcmp(in_place, whole.data(), count * sizeof(float)) == 0, "in place differs");
            auto pieces = values;
            for (std::size_t from = 0; from < count; from += 777) {
                const std::span piece(pieces.data() + from, std::min<std::size_t>(777, count - from));
                findings.expect(world.run(all_reduce(buffer(piece), ReduceOp::avg)), "pieces");
            }
            findings.expect(pieces == whole, "small pieces differ");
        });
        CHECK(findings.text() == "");
    }
}

TEST_CASE(
    "where some ranks reduce in shared memory and others in their own, this result and all later ones are right") {
    for (const int size : {2, 3}) {
        Findings findings;
        run_as_threads(size, [&](const GroupTerms& terms) {
            auto world = test::join_shared_group(terms);
            const auto ranks = static_cast<std::size_t>(size);
            const auto own = static_cast<std::size_t>(terms.rank);
            constexpr std::size_t count_max = 300'000;  // more than a window
            auto memory = world.allocate(count_max * sizeof(float)).value();
            // Copied by all; copied only where the memory is not shared; copied by none.
            for (const std::size_t count : {std::size_t{10}, std::size_t{1'000}, std::size_t{5'000}, count_max}) {
                for (int mixture = 0; mixture < 1 << size; ++mixture) {
                    auto values = elements(terms.rank, count);
                    const bool shared = (mixture >> terms.rank & 1) != 0;
                    const std::span used = shared ? std::span(reinterpret_cast<float*>(memory.data()), count) : values;
                    std::copy(values.begin(), values.end(), used.begin());
                    findings.expect(world.run(all_reduce(buffer(used), ReduceOp::sum)), "all_reduce");
                    for (std::size_t i = 0; i < count; i += 1 + count / 10)
                        findings.expect(used[i] == sum_over(size, i), cat("sum of ", count));
                    const int root = mixture % size;
                    values = elements(terms.rank, count);
                    findings.expect(world.run(broadcast(buffer(std::span(values)), root)), "broadcast");
                    findings.expect(values == elements(root, count), cat("broadcast after ", count));
                    std::vector<float> mine = elements(terms.rank, 7 * ranks), pieces(7 * ranks), piece(7);
                    const ConstBuffer whole(mine.data(), mine.size(), DataType::f32);
                    findings.expect(world.run(all_to_all(whole, buffer(std::span(pieces)), size)), "all_to_all");
                    findings.expect(pieces[0] == element(0, 7 * own), cat("all_to_all after ", count));
                    findings.expect(world.run(reduce_scatter(whole, buffer(std::span(piece)), ReduceOp::sum)),
                                    "scatter");
                    findings.expect(piece[6] == sum_over(size, 7 * own + 6), cat("reduce_scatter after ", count));
                    const std::size_t last = ranks - 1;
                    findings.expect(world.run(all_gather(buffer(std::span(piece)), buffer(std::span(pieces)))),
                                    "gather");
                    findings.expect(pieces[7 * last] == sum_over(size, 7 * last), cat("all_gather after ", count));
                }
            }
        });
        CHECK(findings.text() == "");
    }
}

TEST_CASE("an average counts each rank by its weight") {
    Findings findings;
    run_as_threads(3, [&](const GroupTerms& terms) {
        auto world = test::join_shared_group(terms);
        for (const std::size_t count : {std::size_t{10}, std::size_t{50'000}}) {
            std::vector<float> data(count, static_cast<float>(terms.rank + 1));  // 1, 2, 3 with weights 0, 1, 3
            const float weight = terms.rank == 0 ? 0.0f : static_cast<float>(terms.rank * 2 - 1);
            findings.expect(world.run(all_reduce_weighted(buffer(std::span(data)), weight)), "weighted");
            findings.expect(data.front() == 2.75f && data.back() == 2.75f, cat("weighted average ", data.front()));
        }
    });
    CHECK(findings.text() == "");
}

TEST_CASE("started operations run in order, beside sends and receives") {
    for (const int size : {2, 4}) {
        Findings findings;
        run_as_threads(size, [&](const GroupTerms& terms) {
            auto world = test::join_shared_group(terms);
            constexpr std::size_t count = 300'000;  // more than a channel holds: both directions must move at once
            const int next = (terms.rank + 1) % size;
            const int before = (terms.rank + size - 1) % size;
            for (int turn = 0; turn < 5; ++turn) {
                const auto outgoing = elements(terms.rank, count);
                std::vector<float> incoming(count);
                auto sent = world.start(send({outgoing.data(), count, DataType::f32}, next));
                std::vector<std::vector<float>> buckets;
                for (int i = 0; i < 6; ++i) buckets.push_back(elements(terms.rank, 5'000, static_cast<std::size_t>(i)));
                std::vector<Work> works;
                for (auto& bucket : buckets)
                    works.push_back(world.start(all_reduce(buffer(std::span(bucket)), ReduceOp::sum)));
                auto received = world.start(receive(buffer(std::span(incoming)), before));
                findings.expect(world.run(barrier()), "barrier");
                for (auto& work : works) findings.expect(work.done(), "the barrier has overtaken a started operation");
                findings.expect(sent.wait(), "send");
                findings.expect(received.wait(), "receive");
                findings.expect(incoming == elements(before, count), "received");
                for (std::size_t i = 0; i < buckets.size(); ++i) {
                    findings.expect(buckets[i][0] == sum_over(size, i), "bucket");
                }
            }
        });
        CHECK(findings.text() == "");
    }
}

TEST_CASE("a group splits by color, in the order of the keys") {
    Findings findings;
    run_as_threads(5, [&](const GroupTerms& terms) {
        auto world = test::join_shared_group(terms);
        auto half = world.split(terms.rank == 4 ? -1 : terms.rank % 2, -terms.rank);
        findings.expect(half.has_value(), "split");
        if (terms.rank == 4) {
            findings.expect(*half == nullptr, "a negative color joins nothing");
            return;
        }
        findings.expect((*half)->size() == 2 && (*half)->rank() == (terms.rank >= 2 ? 0 : 1), "place in the half");
        std::vector<float> data{static_cast<float>(terms.rank)};
        findings.expect((*half)->run(all_reduce(buffer(std::span(data)), ReduceOp::sum)), "half");
        findings.expect(data[0] == static_cast<float>(terms.rank % 2 * 2 + 2), cat("sum of the half ", data[0]));
    });
    CHECK(findings.text() == "");
}

TEST_CASE("a group splits as often as it is asked to, also where a rank has joined nothing before") {
    Findings findings;
    run_as_threads(3, [&](const GroupTerms& terms) {
        auto world = test::join_shared_group(terms);
        std::vector<std::unique_ptr<Communicator>> parts;
        for (const bool all : {false, true, true}) {
            auto part = world.split(all || terms.rank < 2 ? 0 : -1, 0);
            findings.expect(part, "split");
            if (part && *part) parts.push_back(std::move(*part));
        }
        for (const auto& part : parts) {
            std::vector<float> data{1};
            findings.expect(part->run(all_reduce(buffer(std::span(data)), ReduceOp::sum)), "a part");
            findings.expect(data[0] == static_cast<float>(part->size()), "it is another part");
        }
        findings.expect(parts.size() == (terms.rank < 2 ? 3u : 2u), "a part is missing");
    });
    CHECK(findings.text() == "");
}

TEST_CASE("ranks that do different things both learn what the other does") {
    struct Case {
        Operation first;
        Operation second;
        std::vector<std::string> words;
    };
    std::vector<float> memory(100'000);
    std::vector<double> doubles(100'000);
    const auto of = [&](std::size_t count) { return buffer(std::span(memory.data(), count)); };
    const auto tagged = [](Operation operation, std::uint32_t tag) {
        operation.tag = tag;
        return operation;
    };
    const std::vector<Case> cases{
        {all_reduce(of(10), ReduceOp::sum), all_reduce(of(11), ReduceOp::sum), {"f32 x 10", "f32 x 11"}},
        {all_reduce(of(90'000), ReduceOp::sum), all_reduce(of(5), ReduceOp::sum), {"f32 x 90000", "f32 x 5"}},
        {all_reduce(of(10), ReduceOp::sum), all_reduce(of(10), ReduceOp::max), {"all_reduce sum", "all_reduce max"}},
        {all_reduce(of(10), ReduceOp::product), all_reduce_premul(of(10), 0.5), {"product f32", "premul_sum f32"}},
        {all_reduce(of(8), ReduceOp::sum),
         all_reduce(buffer(std::span(doubles.data(), 8)), ReduceOp::sum),
         {"f32", "f64"}},
        {broadcast(of(10), 0), broadcast(of(10), 1), {"from rank 0", "from rank 1"}},
        {barrier(), all_reduce(of(10), ReduceOp::sum), {"runs barrier", "runs all_reduce"}},
        {tagged(all_reduce(of(10), ReduceOp::sum), 7),
         tagged(all_reduce(of(10), ReduceOp::sum), 8),
         {"f32 x 10 tagged 7", "f32 x 10 tagged 8"}},
        {gather(of(5), of(10), 0), gather(of(5), of(10), 1), {"gather f32 x 5 to rank 0", "gather f32 x 5 to rank 1"}},
        {gather(of(5), of(10), 0), scatter(of(10), of(5), 0), {"gather f32 x 5 to", "scatter f32 x 5 from"}},
        {reduce(of(10), of(10), ReduceOp::sum, 0),
         reduce(of(10), of(10), ReduceOp::sum, 1),
         {"reduce sum f32 x 10 to rank 0", "reduce sum f32 x 10 to rank 1"}},
        {all_to_all(of(10), of(10), 2),
         test::uneven_pair(memory.data(), memory.data(), 1, 1),
         {"all_to_all_uneven f32"}},
    };
    for (const auto& one : cases) {
        Findings findings;
        run_as_threads(2, [&](const GroupTerms& terms) {
            auto world = test::join_shared_group(terms);
            const auto done = world.run(terms.rank == 0 ? one.first : one.second);
            findings.expect(!done, "a mismatch went unnoticed");
            if (done) return;
            for (const auto& word : one.words) {
                findings.expect(done.error().context.find(word) != std::string::npos, done.error().context);
            }
            const auto again = world.run(barrier());
            findings.expect(!again && again.error().context == done.error().context, "the first failure is not kept");
        });
        CHECK(findings.text() == "");
    }
}

TEST_CASE("ranks that contradict each other about what one sends are told both numbers, and go on") {
    Findings findings;
    run_as_threads(2, [&](const GroupTerms& terms) {
        auto world = test::join_shared_group(terms);
        std::vector<float> input(100), output(100, -1.0f);
        const auto contradicting = test::uneven_pair(input.data(), output.data(), 4, terms.rank == 0 ? 4 : 3);
        for (int i = 0; i < 2; ++i)
            findings.expect_error(world.run(contradicting), {"rank 0 (pid ", " sends 4 elements of f32 to rank 1 (pid ",
                                                             "which expects 3; make both counts equal"});
        findings.expect(output == std::vector<float>(100, -1.0f), "data came");
        findings.expect(world.run(test::uneven_pair(input.data(), output.data(), 4, 4)), "afterwards");
        findings.expect(output[7] == 0 && output[8] == -1.0f, "what came afterwards");
    });
    CHECK(findings.text() == "");
}

TEST_CASE("a message that is not what its receiver waits for ends the group for both, who learn what the other has") {
    struct Case {
        Operation sent;
        Operation received;
        std::vector<std::string> words;
    };
    std::vector<float> floats(100'000);
    std::vector<double> doubles(100'000);
    const auto of = [&](std::size_t count) { return buffer(std::span(floats.data(), count)); };
    const auto of_f64 = [&](std::size_t count) { return buffer(std::span(doubles.data(), count)); };
    Case tagged{send(of(10), 1), receive(of(10), 0), {"sent f32 x 10 tagged 3 to", "receives f32 x 10 tagged 4"}};
    tagged.sent.tag = 3;
    tagged.received.tag = 4;
    for (const auto& one :
         {Case{send(of(10), 1), receive(of(11), 0), {"sent f32 x 10 to", "receives f32 x 11"}},
          Case{send(of(90'000), 1), receive(of(5), 0), {"sent f32 x 90000 to", "receives f32 x 5"}},
          Case{send(of(8), 1), receive(of_f64(4), 0), {"sent f32 x 8 to", "receives f64 x 4"}}, tagged}) {
        Findings findings;
        run_as_threads(2, [&](const GroupTerms& terms) {
            auto world = test::join_shared_group(terms);
            auto words = one.words;
            words.insert(words.end(), {"rank 0 (pid ", "rank 1 (pid "});
            // A small message is sent as soon as it is taken: its sender learns of it in the next operation.
            const auto done = world.run(terms.rank == 0 ? one.sent : one.received);
            if (terms.rank == 1 || !done) findings.expect_error(done, words);
            findings.expect_error(world.run(barrier()), words);
        });
        CHECK(findings.text() == "");
    }
}

TEST_CASE("who sends to a rank that has left, or waits for a message of it, is told so and does not wait") {
    for (const bool sends : {true, false}) {
        Findings findings;
        run_as_threads(2, [&](const GroupTerms& terms) {
            auto world = test::join_shared_group(terms);
            if (terms.rank == 1) return;
            std::vector<float> data(300'000);  // more than a channel holds
            const auto whole = buffer(std::span(data));
            findings.expect_error(world.run(sends ? send(whole, 1) : receive(whole, 1), 20s),
                                  {"rank 1 (pid ", "closed communicator"});
        });
        CHECK(findings.text() == "");
    }
}

TEST_CASE("a rank that does not come is named at the deadline, and the others hear of it") {
    Findings findings;
    std::atomic<int> failed = 0;
    run_as_threads(3, [&](const GroupTerms& terms) {
        auto world = test::join_shared_group(terms);
        if (terms.rank == 2) {
            while (failed < 2) std::this_thread::sleep_for(1ms);
            return;
        }
        // Rank 0's deadline passes first; rank 1 has an hour.
        const auto done = world.run(barrier(), terms.rank == 0 ? Duration(50ms) : Duration(3600s));
        findings.expect(!done && done.error().context.find("rank 2 (pid") != std::string::npos,
                        done ? "no error" : done.error().context);
        ++failed;
    });
    CHECK(findings.text() == "");
}

TEST_CASE("a rank that comes after the others have given up fails in that very operation") {
    std::vector<float> memory(150'000);
    const auto of = [&](int rank, std::size_t count) {
        return buffer(std::span(memory).subspan(static_cast<std::size_t>(rank) * 50'000, count));
    };
    const std::vector<std::function<Operation(int)>> operations{
        [](int) { return barrier(); },
        [&](int rank) { return all_reduce(of(rank, 10), ReduceOp::sum); },
        [&](int rank) { return all_reduce(of(rank, 50'000), ReduceOp::sum); },
        [&](int rank) { return broadcast(of(rank, 10), 0); },
        [&](int rank) { return rank == 2 ? send(of(2, 10), 0) : receive(of(rank, 10), 2); },
    };
    for (const auto& operation : operations) {
        Findings findings;
        std::atomic<int> failed = 0;
        run_as_threads(3, [&](const GroupTerms& terms) {
            auto world = test::join_shared_group(terms);
            while (terms.rank == 2 && failed < 2) std::this_thread::sleep_for(1ms);
            const auto done = world.run(operation(terms.rank), terms.rank == 2 ? Duration(60s) : Duration(20ms));
            findings.expect(!done && done.error().context.find("rank 2 (pid ") != std::string::npos,
                            done ? cat("rank ", terms.rank, " passed") : done.error().context);
            ++failed;
        });
        CHECK(findings.text() == "");
    }
}

TEST_CASE("who gives up waiting for a step takes it from its owner, and one that was made stays made") {
    const Instant past = std::chrono::steady_clock::now();
    StepWord late;
    CHECK(await_step(late, 1, {}, past) == WaitEnd::timed_out);
    CHECK_FALSE(publish_step(late));
    CHECK(steps_of(late) == 0);
    CHECK(await_step(late, 1, {}, past) == WaitEnd::failed);
    StepWord early;
    CHECK(publish_step(early));
    mark_failed(early);
    CHECK(await_step(early, 1, {}, past) == WaitEnd::reached);
    CHECK(await_step(early, 2, {}, past) == WaitEnd::failed);
}

TEST_CASE("ranks that come just before or just after a deadline all pass, or all fail") {
    int passed = 0;
    for (int run = 0; run < 300; ++run) {
        std::atomic<int> passed_now = 0, ready = 0;
        run_as_threads(3, [&](const GroupTerms& terms) {
            auto world = test::join_shared_group(terms);
            for (++ready; ready < 3;) std::this_thread::yield();
            const auto began = std::chrono::steady_clock::now();
            // The moments are what is tried: rank r waits for the others 100 us longer than rank r - 1.
            // Some are surely late, also for those who look around before they give up, and every tenth is surely in
            // time, however busy the machine.
            const auto drawn = run % 100 == 99 ? 3'000'000 : 100 + run * 5 % 600;
            const auto lateness = std::chrono::microseconds(terms.rank == 2 ? drawn : 0);
            while (std::chrono::steady_clock::now() - began < lateness) {
            }
            const Duration patience = run % 10 == 8 ? Duration(60s) : std::chrono::microseconds(300 + 100 * terms.rank);
            if (world.run(barrier(), patience)) ++passed_now;
        });
        REQUIRE((passed_now == 0 || passed_now == 3));
        passed += passed_now == 3 ? 1 : 0;
    }
    CHECK(passed > 0);
    CHECK(passed < 300);
}

TEST_CASE("an abort ends what all ranks are waiting in, and says why") {
    Findings findings;
    run_as_threads(3, [&](const GroupTerms& terms) {
        auto world = test::join_shared_group(terms);
        auto waiting = world.start(terms.rank == 1 ? receive({}, 0) : barrier());
        if (terms.rank == 1) world.abort("the loss is NaN");
        const auto done = waiting.wait();
        findings.expect(!done && done.error().context.find("the loss is NaN") != std::string::npos,
                        done ? "no error" : done.error().context);
    });
    CHECK(findings.text() == "");
}

TEST_CASE("memory that this host does not have is refused before it is touched, and the group lives on") {
    Findings findings;
    run_as_threads(2, [&](const GroupTerms& terms) {
        auto world = test::join_shared_group(terms);
        const auto memory = world.allocate(std::size_t{1} << 50);
        findings.expect(!memory && memory.error().code == Errc::limit_exceeded &&
                            memory.error().context.find("rank ") != std::string::npos,
                        memory ? "no error" : memory.error().context);
        // Beyond what can be rounded up to pages: a negative size, most often.
        const auto none = world.allocate(static_cast<std::size_t>(-20));
        findings.expect(!none && none.error().code == Errc::limit_exceeded, "a negative size");
        findings.expect(world.run(barrier()), "the group is gone");
    });
    CHECK(findings.text() == "");
}

TEST_CASE("memory that a world of one does not have is refused before it is touched") {
    const auto alone = make_alone_transport();
    const RunTerms terms{.deadline = std::chrono::steady_clock::now() + 60s};
    // Far beyond what other processes may give back meanwhile.
    const auto memory = alone->allocate(available_memory_bytes() + (std::size_t{8} << 30), terms);
    REQUIRE(memory.has_error());
    CHECK(memory.error().code == Errc::limit_exceeded);
    CHECK(memory.error().context.find("KiB are left") != std::string::npos);
    CHECK(alone->allocate(1000, terms).has_value());
}

TEST_CASE("communicators leave neither descriptors nor threads behind") {
    const auto cycle = [] {
        run_as_threads(2, [](const GroupTerms& terms) {
            auto world = test::join_shared_group(terms);
            const auto memory = world.allocate(100'000);
            std::vector<float> data(10);
            (void)world.start(all_reduce(buffer(std::span(data)), ReduceOp::sum)).wait();
        });
    };
    cycle();
    const auto descriptors = test::open_descriptors();
    const auto threads = test::threads_alive();
    for (int i = 0; i < 100; ++i) cycle();
    // A thread that was joined may still be on the kernel's list.
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while ((test::open_descriptors() > descriptors || test::threads_alive() > threads) &&
           std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(1ms);
    CHECK(test::open_descriptors() <= descriptors);
    CHECK(test::threads_alive() <= threads);
}

}  // namespace muster
