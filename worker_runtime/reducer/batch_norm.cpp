#include "muster/batch_norm.h"

#include <algorithm>
#include <vector>

#include "rendezvous/base/text/text.h"

namespace muster {

Result<void> synchronise_batch_statistics(Communicator& communicator, BatchStatistics& statistics) {
    const std::size_t channels = statistics.mean.size();
    if (statistics.variance.size() != channels) {
        return Error{Errc::invalid_argument,
                     cat("batch norm: ", channels, " means, but ", statistics.variance.size(), " variances")};
    }
    // For each rank: its count, its means, its variances.
    const std::size_t words = 1 + 2 * channels;
    const auto world = static_cast<std::size_t>(communicator.size());
    std::vector<double> mine{static_cast<double>(statistics.count)};
    mine.insert(mine.end(), statistics.mean.begin(), statistics.mean.end());
    mine.insert(mine.end(), statistics.variance.begin(), statistics.variance.end());
    std::vector<double> all(words * world);
    auto gathered = communicator.run(all_gather({mine.data(), words, DataType::f64}, buffer(std::span<double>(all))));
    if (!gathered) return with_context(gathered.error(), "batch norm statistics");
    double total = 0;
    for (std::size_t rank = 0; rank < world; ++rank) total += all[rank * words];
    statistics.count = static_cast<std::uint64_t>(total);
    for (std::size_t c = 0; c < channels; ++c) {
        double count = 0;
        double mean = 0;
        double squares = 0;  // sum of squared deviations from the mean
        for (std::size_t rank = 0; rank < world; ++rank) {
            const double* const theirs = &all[rank * words];
            const double their_count = theirs[0];
            if (their_count == 0) continue;
            const double distance = theirs[1 + c] - mean;
            const double sum = count + their_count;
            mean += distance * their_count / sum;
            squares += theirs[1 + channels + c] * their_count + distance * distance * count * their_count / sum;
            count = sum;
        }
        statistics.mean[c] = static_cast<float>(mean);
        statistics.variance[c] = static_cast<float>(count > 0 ? squares / count : 0);
    }
    return {};
}

Result<void> synchronise_batch_gradients(Communicator& communicator, std::span<float> sum_gradient,
                                         std::span<float> sum_product) {
    std::vector<float> both(sum_gradient.begin(), sum_gradient.end());
    both.insert(both.end(), sum_product.begin(), sum_product.end());
    auto summed = communicator.run(all_reduce(buffer(std::span<float>(both)), ReduceOp::sum));
    if (!summed) return with_context(summed.error(), "batch norm gradients");
    const auto border = both.begin() + static_cast<std::ptrdiff_t>(sum_gradient.size());
    std::copy(both.begin(), border, sum_gradient.begin());
    std::copy(border, both.end(), sum_product.begin());
    return {};
}

}  // namespace muster
