#include "rendezvous/base/text/metrics_page.h"

#include "rendezvous/base/text/text.h"

namespace muster {

namespace {

std::string escaped_label(std::string_view value) {
    std::string out;
    for (const char letter : value) {
        if (letter == '\\' || letter == '"')
            out += cat('\\', letter);
        else if (letter == '\n')
            out += "\\n";
        else
            out += letter;
    }
    return out;
}

std::string_view without(std::string_view name, std::string_view suffix) {
    if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
    return name;
}

}  // namespace

MetricsFormat metrics_format(std::string_view accept) {
    for (const auto one : split(accept, ',')) {
        const auto parts = split(one, ';');
        if (trim(parts.front()) != "application/openmetrics-text") continue;
        bool is_known = true;
        for (std::size_t i = 1; i < parts.size(); ++i) {
            const auto part = trim(parts[i]);
            if (part.starts_with("version=")) is_known = part == "version=1.0.0";
            if (part == "q=0" || part == "q=0.0") is_known = false;
        }
        if (is_known) return MetricsFormat::open_metrics;
    }
    return MetricsFormat::text;
}

std::string_view metrics_content_type(MetricsFormat format) {
    return format == MetricsFormat::text ? "text/plain; version=0.0.4; charset=utf-8"
                                         : "application/openmetrics-text; version=1.0.0; charset=utf-8";
}

void MetricsPage::family(std::string_view name, MetricKind kind, std::string_view help) {
    name_ = name;
    const bool is_open = format_ == MetricsFormat::open_metrics;
    const auto family = !is_open                      ? name
                        : kind == MetricKind::counter ? without(name, "_total")
                        : kind == MetricKind::info    ? without(name, "_info")
                                                      : name;
    const std::string_view type = kind == MetricKind::counter           ? "counter"
                                  : kind == MetricKind::histogram       ? "histogram"
                                  : kind == MetricKind::info && is_open ? "info"
                                                                        : "gauge";
    out_ += cat("# HELP ", family, " ", help, "\n# TYPE ", family, " ", type, "\n");
}

void MetricsPage::add(double value, const Labels& labels) {
    write({}, cat(value), labels);
}

void MetricsPage::write(std::string_view suffix, const std::string& value, const Labels& labels) {
    out_ += cat(name_, suffix);
    for (std::size_t i = 0; i < labels.size(); ++i)
        out_ += cat(i == 0 ? "{" : ",", labels[i].first, "=\"", escaped_label(labels[i].second), "\"");
    out_ += cat(labels.empty() ? " " : "} ", value, "\n");
}

void MetricsPage::add_histogram(std::span<const double> bounds, std::span<const std::uint64_t> counts, double sum,
                                const Labels& labels) {
    auto with_bound = labels;
    with_bound.emplace_back("le", "");
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        count += counts[i];
        // OpenMetrics reads "1.0", and not "1".
        auto bound = i < bounds.size() ? cat(bounds[i]) : std::string("+Inf");
        if (bound.find_first_not_of("0123456789") == std::string::npos) bound += ".0";
        with_bound.back().second = bound;
        write("_bucket", cat(count), with_bound);
    }
    write("_sum", cat(sum), labels);
    write("_count", cat(count), labels);
}

std::string MetricsPage::finish() {
    if (format_ == MetricsFormat::open_metrics) out_ += "# EOF\n";
    return std::move(out_);
}

}  // namespace muster
