#include "muster/batch_norm.h"

#include <cmath>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/thread_group.h"

using namespace muster;
using namespace muster::test;

TEST_CASE("batch statistics of all ranks are those of all values together, whatever their numbers and means") {
    const std::vector<std::vector<float>> values{{1, 2, 4}, {}, {10001, 10003}, {-7, -7, -7, -7}};
    double sum = 0;
    double count = 0;
    for (const auto& own : values) {
        for (const float each : own) {
            sum += each;
            count += 1;
        }
    }
    double squares = 0;
    for (const auto& own : values) {
        for (const float each : own) squares += (each - sum / count) * (each - sum / count);
    }
    ThreadGroup group(4);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const auto& own = values[static_cast<std::size_t>(communicator.rank())];
        double own_sum = 0;
        for (const float each : own) own_sum += each;
        const double own_mean = own.empty() ? 0 : own_sum / static_cast<double>(own.size());
        double own_squares = 0;
        for (const float each : own) own_squares += (each - own_mean) * (each - own_mean);
        // The second channel holds the same values, a million higher.
        std::vector<float> mean{static_cast<float>(own_mean), static_cast<float>(own_mean + 1e6)};
        std::vector<float> variance(
            2, own.empty() ? 0 : static_cast<float>(own_squares / static_cast<double>(own.size())));
        BatchStatistics statistics{.mean = mean, .variance = variance, .count = own.size()};
        if (!synchronise_batch_statistics(communicator, statistics)) return "it failed";
        if (statistics.count != 9) return "the count is wrong";
        if (std::abs(mean[0] - sum / count) > 1e-3) return "the mean is wrong";
        if (std::abs(variance[0] / (squares / count) - 1) > 1e-6) return "the variance is wrong";
        if (std::abs(variance[1] / (squares / count) - 1) > 1e-4) return "the variance beside a large mean is wrong";
        return {};
    });
    CHECK(wrong == "");
}

TEST_CASE("a first rank without samples, or a batch without any, leaves numbers") {
    for (const bool all_empty : {false, true}) {
        ThreadGroup group(2);
        const auto wrong = group.run([&](Communicator& communicator) -> std::string {
            const bool empty = all_empty || communicator.rank() == 0;
            std::vector<float> mean{empty ? 0.0f : 3.0f};
            std::vector<float> variance{empty ? 0.0f : 2.0f};
            BatchStatistics statistics{.mean = mean, .variance = variance, .count = empty ? 0u : 5u};
            if (!synchronise_batch_statistics(communicator, statistics)) return "it failed";
            if (statistics.count != (all_empty ? 0u : 5u)) return "the count is wrong";
            return mean[0] == (all_empty ? 0 : 3) && variance[0] == (all_empty ? 0 : 2) ? "" : "they are wrong";
        });
        CHECK(wrong == "");
    }
}

TEST_CASE("batch gradients are summed over all ranks") {
    ThreadGroup group(3);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const auto rank = static_cast<float>(communicator.rank());
        std::vector<float> gradient{1, rank};
        std::vector<float> product{rank * rank, 10};
        if (!synchronise_batch_gradients(communicator, gradient, product)) return "it failed";
        const bool right = gradient == std::vector<float>{3, 3} && product == std::vector<float>{5, 30};
        return right ? "" : "the sums are wrong";
    });
    CHECK(wrong == "");
}

TEST_CASE("means and variances of different numbers of channels are refused") {
    ThreadGroup group(1);
    CHECK(group.run([&](Communicator& communicator) -> std::string {
        std::vector<float> mean(3);
        std::vector<float> variance(2);
        BatchStatistics statistics{.mean = mean, .variance = variance, .count = 1};
        const auto done = synchronise_batch_statistics(communicator, statistics);
        return done ? "it was accepted" : done.error().context;
    }) == "rank 0: batch norm: 3 means, but 2 variances");
}
