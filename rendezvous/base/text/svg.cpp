#include "rendezvous/base/text/svg.h"

#include "rendezvous/base/text/decimal.h"
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

std::string list(const std::vector<Svg::Point>& points) {
    std::string out;
    for (const auto& [x, y] : points) out += cat(out.empty() ? "" : " ", one_decimal(x), ",", one_decimal(y));
    return out;
}

}  // namespace

Svg::Svg(double width, double height)
    : out_(cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", one_decimal(width), "\" height=\"",
               one_decimal(height),
               "\" font-family=\"monospace\" font-size=\"11\">\n"
               "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n")) {}

void Svg::add(std::string_view element, std::string_view attributes, std::string_view title) {
    out_ += cat("<", element, " ", attributes);
    out_ += title.empty() ? std::string("/>\n") : cat("><title>", escaped(title), "</title></", element, ">\n");
}

void Svg::box(const Box& box, std::string_view fill, std::string_view title) {
    add("rect",
        cat("x=\"", one_decimal(box.x), "\" y=\"", one_decimal(box.y), "\" width=\"", one_decimal(box.width),
            "\" height=\"", one_decimal(box.height), "\" fill=\"", fill, "\""),
        title);
}

void Svg::shape(const std::vector<Point>& corners, std::string_view fill, std::string_view title) {
    add("polygon", cat("points=\"", list(corners), "\" fill=\"", fill, "\""), title);
}

void Svg::line(const std::vector<Point>& points, std::string_view stroke, double width) {
    add("polyline",
        cat("points=\"", list(points), "\" fill=\"none\" stroke=\"", stroke, "\" stroke-width=\"", one_decimal(width),
            "\""),
        {});
}

void Svg::text(const Point& at, std::string_view words, const Lettering& lettering) {
    const auto [x, y] = at;
    const auto place = lettering.upwards
                           ? cat("transform=\"translate(", one_decimal(x), " ", one_decimal(y), ") rotate(-90)\"")
                           : cat("x=\"", one_decimal(x), "\" y=\"", one_decimal(y), "\"");
    const std::string_view anchor = lettering.align == Align::middle ? " text-anchor=\"middle\""
                                    : lettering.align == Align::end  ? " text-anchor=\"end\""
                                                                     : "";
    out_ += cat("<text fill=\"", lettering.fill, "\" ", place, anchor, ">", escaped(words), "</text>\n");
}

std::string Svg::finish() {
    return std::move(out_) + "</svg>\n";
}

}  // namespace muster
