#include "rendezvous/base/text/metrics_page.h"

#include "rendezvous/base/time_histogram.h"
#include "tests/support/catch.h"

using namespace muster;

namespace {

std::string page_in(MetricsFormat format) {
    MetricsPage page(format);
    page.add_one("muster_accepted_total", MetricKind::counter, "Accepted.", 3);
    page.family("muster_build_info", MetricKind::info, "This build.");
    page.add(1, {{"version", "0.1.0"}});
    page.family("muster_ratio", MetricKind::gauge, "A ratio.");
    page.add(0.1, {{"job", "a"}, {"state", "b"}});
    return page.finish();
}

}  // namespace

TEST_CASE("the text format names each family as its series") {
    CHECK(
        page_in(MetricsFormat::text) ==
        "# HELP muster_accepted_total Accepted.\n# TYPE muster_accepted_total counter\nmuster_accepted_total 3\n"
        "# HELP muster_build_info This build.\n# TYPE muster_build_info gauge\nmuster_build_info{version=\"0.1.0\"} 1\n"
        "# HELP muster_ratio A ratio.\n# TYPE muster_ratio gauge\nmuster_ratio{job=\"a\",state=\"b\"} 0.1\n");
}

TEST_CASE("OpenMetrics names families without their suffix, and has an end") {
    CHECK(page_in(MetricsFormat::open_metrics) ==
          "# HELP muster_accepted Accepted.\n# TYPE muster_accepted counter\nmuster_accepted_total 3\n"
          "# HELP muster_build This build.\n# TYPE muster_build info\nmuster_build_info{version=\"0.1.0\"} 1\n"
          "# HELP muster_ratio A ratio.\n# TYPE muster_ratio gauge\nmuster_ratio{job=\"a\",state=\"b\"} 0.1\n# EOF\n");
}

TEST_CASE("label values are escaped") {
    MetricsPage page(MetricsFormat::text);
    page.family("m", MetricKind::gauge, "M.");
    page.add(1, {{"job", "a\"b\\c\nd"}});
    const auto text = page.finish();
    CHECK(text.substr(text.rfind("m{")) == "m{job=\"a\\\"b\\\\c\\nd\"} 1\n");
}

TEST_CASE("the Accept header decides the format") {
    using enum MetricsFormat;
    CHECK(metrics_format("") == text);
    CHECK(metrics_format("*/*") == text);
    CHECK(metrics_format("application/openmetrics-text") == open_metrics);
    CHECK(metrics_format("application/openmetrics-text;version=0.0.1") == text);
    CHECK(metrics_format("application/openmetrics-text; version=2.0.0,text/plain") == text);
    CHECK(metrics_format("application/openmetrics-text;version=1.0.0;q=0") == text);
    // What Prometheus 2.42 sends.
    CHECK(metrics_format("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
                         "text/plain;version=0.0.4;q=0.5,*/*;q=0.1") == open_metrics);
    CHECK(metrics_content_type(text) == "text/plain; version=0.0.4; charset=utf-8");
}

TEST_CASE("a duration is counted in the first bucket that it does not exceed") {
    TimeHistogram times;
    for (const Duration time : {Duration(0s), Duration(1ms), Duration(1ms + 1us), Duration(10s), Duration(11s)})
        times.add(time);
    CHECK(times.counts()[0] == 2);
    CHECK(times.counts()[1] == 1);
    CHECK(times.counts()[8] == 1);
    CHECK(times.counts()[9] == 1);
    MetricsPage page(MetricsFormat::text);
    page.family("t", MetricKind::histogram, "Times.");
    page.add_histogram(TimeHistogram::bounds, times.counts(), times.sum_seconds());
    const auto text = page.finish();
    INFO(text);
    CHECK(text.find("t_bucket{le=\"0.001\"} 2\n") != text.npos);
    CHECK(text.find("t_bucket{le=\"10.0\"} 4\n") != text.npos);
    CHECK(text.find("t_bucket{le=\"+Inf\"} 5\n") != text.npos);
    CHECK(text.find("\nt_count 5\n") != text.npos);
}
