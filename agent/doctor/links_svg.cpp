#include "agent/doctor/links_svg.h"

#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) switch (c) {
            case '<': out += "&lt;"; break;
            case '>': out += "&gt;"; break;
            case '&': out += "&amp;"; break;
            case '"': out += "&quot;"; break;
            default: out += c;
        }
    return out;
}

std::string square(std::int64_t column, std::int64_t row, bool passed, const std::string& words) {
    constexpr int side = 14, margin = 120;
    return cat("<rect x=\"", margin + column * side, "\" y=\"", margin + row * side,
               "\" width=\"12\" height=\"12\" fill=\"", passed ? "#2e7d32" : "#c62828", "\"><title>", escaped(words),
               "</title></rect>\n");
}

}  // namespace

std::string links_svg(const Look& nodes) {
    constexpr std::int64_t side = 14, margin = 120;
    const auto all = nodes.all("node");
    const auto size = margin + side * static_cast<std::int64_t>(all.size()) + side;
    auto out =
        cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", size, "\" height=\"", size,
            "\" font-family=\"monospace\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
    std::int64_t row = 0;
    for (const auto* node : all) {
        const bool passed = node->text("verdict") == "passed";
        const auto name = cat("<text fill=\"", passed ? "black" : "#c62828", "\" ");
        const auto middle = margin + row * side + 10;
        out += cat(name, "x=\"4\" y=\"", middle, "\">", escaped(node->text("host")), "</text>\n", name,
                   "transform=\"translate(", middle, " 116) rotate(-90)\">", escaped(node->text("host")), "</text>\n");
        ++row;
    }
    for (const auto* pair : nodes.all("pair")) {
        const auto a = pair->number("a").value_or(0), b = pair->number("b").value_or(0);
        const bool passed = pair->text("passed") == "1";
        const auto words =
            passed ? cat(pair->text("mbytes-per-s"), " MB/s, ", pair->text("latency-us"), " us") : pair->text("why");
        out += square(a, b, passed, words) + square(b, a, passed, words);
    }
    return out + "</svg>\n";
}

std::string hosts_of(const Look& nodes, bool passed) {
    std::string out;
    for (const auto* node : nodes.all("node"))
        if ((node->text("verdict") == "passed") == passed) out += node->text("host") + '\n';
    return out;
}

}  // namespace muster::agent
