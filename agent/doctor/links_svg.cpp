#include "agent/doctor/links_svg.h"

#include <algorithm>

#include "agent/doctor/node_records.h"
#include "rendezvous/base/text/svg.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr double side = 14;
constexpr double margin = 120;
constexpr std::string_view failed_colour = "#c62828";

double place_of(std::int64_t index) {
    return margin + side * static_cast<double>(index);
}

/// A job of several nodes with one that fails in groups hangs, although its pairs pass.
bool has_passed(const Look& nodes, const FactRecord& node) {
    const bool fails_in_groups = std::ranges::any_of(nodes.all("together"), [&](const FactRecord* group) {
        return group->text("ranks") == node.text("rank") && !is_slow(group->text("why"));
    });
    return node.text("verdict") == "passed" && !fails_in_groups;
}

}  // namespace

std::string links_svg(const Look& nodes) {
    const auto all = nodes.all("node");
    const auto size = place_of(static_cast<std::int64_t>(all.size())) + side;
    Svg picture(size, size);
    std::int64_t row = 0;
    for (const auto* node : all) {
        const auto fill = has_passed(nodes, *node) ? Svg::Lettering{}.fill : failed_colour;
        const auto middle = place_of(row++) + 10;
        picture.text({4, middle}, node->text("host"), {.fill = fill});
        picture.text({middle, margin - 4}, node->text("host"), {.fill = fill, .upwards = true});
    }
    for (const auto* pair : nodes.all("pair")) {
        const auto a = place_of(pair->number("a").value_or(0)), b = place_of(pair->number("b").value_or(0));
        const bool passed = pair->text("passed") == "1";
        const auto words =
            passed ? cat(pair->text("mbytes-per-s"), " MB/s, ", pair->text("latency-us"), " us") : pair->text("why");
        for (const auto& [x, y] : {Svg::Point{a, b}, Svg::Point{b, a}})
            picture.box({x, y, 12, 12}, passed ? "#2e7d32" : failed_colour, words);
    }
    return picture.finish();
}

std::string hosts_of(const Look& nodes, bool passed) {
    std::string out;
    for (const auto* node : nodes.all("node"))
        if (has_passed(nodes, *node) == passed) out += node->text("host") + '\n';
    return out;
}

}  // namespace muster::agent
