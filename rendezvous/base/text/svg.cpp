#include "rendezvous/base/text/svg.h"

#include <cmath>

#include "rendezvous/base/text/text.h"

namespace muster {

namespace {

/// XML allows no control characters, not even as references.
std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) switch (c) {
            case '<': out += "&lt;"; break;
            case '>': out += "&gt;"; break;
            case '&': out += "&amp;"; break;
            case '"': out += "&quot;"; break;
            default: out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
        }
    return out;
}

/// A tenth of a pixel is enough.
std::string number(double value) {
    const auto tenths = std::llround(value * 10);
    const auto digits = std::abs(tenths);
    const auto whole = cat(tenths < 0 ? "-" : "", digits / 10);
    return digits % 10 == 0 ? whole : cat(whole, ".", digits % 10);
}

std::string list(const std::vector<Svg::Point>& points) {
    std::string out;
    for (const auto& [x, y] : points) out += cat(out.empty() ? "" : " ", number(x), ",", number(y));
    return out;
}

}  // namespace

Svg::Svg(double width, double height)
    : out_(cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", number(width), "\" height=\"", number(height),
               "\" font-family=\"monospace\" font-size=\"11\">\n"
               "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n")) {}

void Svg::add(std::string_view element, std::string_view attributes, std::string_view title) {
    out_ += cat("<", element, " ", attributes);
    out_ += title.empty() ? std::string("/>\n") : cat("><title>", escaped(title), "</title></", element, ">\n");
}

void Svg::box(const Box& box, std::string_view fill, std::string_view title) {
    add("rect",
        cat("x=\"", number(box.x), "\" y=\"", number(box.y), "\" width=\"", number(box.width), "\" height=\"",
            number(box.height), "\" fill=\"", fill, "\""),
        title);
}

void Svg::shape(const std::vector<Point>& corners, std::string_view fill, std::string_view title) {
    add("polygon", cat("points=\"", list(corners), "\" fill=\"", fill, "\""), title);
}

void Svg::line(const std::vector<Point>& points, std::string_view stroke, double width) {
    add("polyline",
        cat("points=\"", list(points), "\" fill=\"none\" stroke=\"", stroke, "\" stroke-width=\"", number(width), "\""),
        {});
}

void Svg::text(const Point& at, std::string_view words, const Lettering& lettering) {
    const auto [x, y] = at;
    const auto place = lettering.upwards ? cat("transform=\"translate(", number(x), " ", number(y), ") rotate(-90)\"")
                                         : cat("x=\"", number(x), "\" y=\"", number(y), "\"");
    const std::string_view anchor = lettering.align == Align::middle ? " text-anchor=\"middle\""
                                    : lettering.align == Align::end  ? " text-anchor=\"end\""
                                                                     : "";
    out_ += cat("<text fill=\"", lettering.fill, "\" ", place, anchor, ">", escaped(words), "</text>\n");
}

std::string Svg::finish() {
    return std::move(out_) + "</svg>\n";
}

}  // namespace muster
