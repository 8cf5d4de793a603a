#include "rendezvous/base/text/svg.h"

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;

namespace {

bool has(const std::string& picture, std::string_view line) {
    for (const auto one : split(picture, '\n'))
        if (one == line) return true;
    return false;
}

}  // namespace

TEST_CASE("a picture is one SVG document with its shapes in order") {
    Svg picture(100, 50.25);
    picture.box({1, 2.55, 3, 4}, "red", "a < b & \"c\"\n\x01");
    picture.shape({{0, 0}, {-1.25, 2}}, "blue");
    picture.line({{0, 0}, {10, 20}}, "black", 1.5);
    picture.text({5, 6}, "<job>", {.fill = "grey", .align = Svg::Align::middle});
    picture.text({7, 8}, "up", {.upwards = true});
    const auto text = picture.finish();
    INFO(text);
    CHECK(text.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"100\" height=\"50.3\""));
    CHECK(text.ends_with("</svg>\n"));
    for (const char* line :
         {"<rect x=\"1\" y=\"2.6\" width=\"3\" height=\"4\" fill=\"red\"><title>a &lt; b &amp; &quot;c&quot;  "
          "</title></rect>",
          "<polygon points=\"0,0 -1.3,2\" fill=\"blue\"/>",
          "<polyline points=\"0,0 10,20\" fill=\"none\" stroke=\"black\" stroke-width=\"1.5\"/>",
          "<text fill=\"grey\" x=\"5\" y=\"6\" text-anchor=\"middle\">&lt;job&gt;</text>",
          "<text fill=\"#202124\" transform=\"translate(7 8) rotate(-90)\">up</text>"})
        CHECK(has(text, line));
}
