// Draws a picture as SVG text, with the standard's shapes and no styles from elsewhere. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster {

class Svg {
  public:
    struct Box {
        double x = 0;
        double y = 0;
        double width = 0;
        double height = 0;
    };
    using Point = std::pair<double, double>;
    enum class Align { start, middle, end };
    struct Lettering {
        std::string_view fill = "#202124";
        Align align = Align::start;
        bool upwards = false;  ///< Written from the bottom to the top.
    };

    /// A white picture, in pixels, with monospaced letters of 11 pixels.
    Svg(double width, double height);

    /// `title`: what a viewer shows for the shape under the pointer. Empty: nothing.
    void box(const Box& box, std::string_view fill, std::string_view title = {});
    void shape(const std::vector<Point>& corners, std::string_view fill, std::string_view title = {});
    void line(const std::vector<Point>& points, std::string_view stroke, double width = 1);
    void text(const Point& at, std::string_view words, const Lettering& lettering);
    void text(const Point& at, std::string_view words) { text(at, words, Lettering{}); }

    /// The whole document. Nothing may be added afterwards.
    std::string finish();

  private:
    void add(std::string_view element, std::string_view attributes, std::string_view title);

    std::string out_;
};

}  // namespace muster
