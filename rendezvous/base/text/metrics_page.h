// Writes metrics in the two formats that Prometheus reads: text 0.0.4, and OpenMetrics 1.0. Pure.
//
// Values are written without a locale and with all their digits. A series whose value is unknown is left out.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster {

enum class MetricsFormat { text, open_metrics };

/// The format that a request's Accept header asks for: OpenMetrics if it names version 1.0.0 or none, else text.
MetricsFormat metrics_format(std::string_view accept);
std::string_view metrics_content_type(MetricsFormat format);

enum class MetricKind { counter, gauge, histogram, info };

class MetricsPage {
  public:
    using Labels = std::vector<std::pair<std::string_view, std::string_view>>;

    explicit MetricsPage(MetricsFormat format) : format_(format) {}

    /// Begins a family. `name` is the one that queries use: that of a counter ends in _total, that of an info in _info.
    void family(std::string_view name, MetricKind kind, std::string_view help);
    /// A series of the last family. Label values are UTF-8.
    void add(double value, const Labels& labels = {});
    void add(std::integral auto value, const Labels& labels = {}) { add(static_cast<double>(value), labels); }
    /// A series of the last family, a histogram. `counts` has one element more than `bounds`, in which each value is
    /// counted once. `sum`: of all values.
    void add_histogram(std::span<const double> bounds, std::span<const std::uint64_t> counts, double sum,
                       const Labels& labels = {});
    void add_one(std::string_view name, MetricKind kind, std::string_view help, auto value) {
        family(name, kind, help);
        add(value);
    }
    /// The page. Nothing may be added afterwards.
    std::string finish();

  private:
    void write(std::string_view suffix, const std::string& value, const Labels& labels);

    const MetricsFormat format_;
    std::string out_;
    std::string name_;
};

}  // namespace muster
