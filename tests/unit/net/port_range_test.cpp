#include "rendezvous/net/listener.h"
#include "rendezvous/net/station.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;

TEST_CASE("a port or a range of ports is read whole") {
    CHECK(*parse_port_range("29400") == PortRange{29400, 29400});
    CHECK(*parse_port_range("29500-29599") == PortRange{29500, 29599});
    CHECK(*parse_port_range("29500:29599") == PortRange{29500, 29599});
    CHECK(*parse_port_range("0") == PortRange{0, 0});
    CHECK(*parse_port_range("7-7") == PortRange{7, 7});
}

TEST_CASE("what is no port range is refused with the text and what is accepted") {
    for (const std::string text : {"", "x", "1-", "-1", "5-4", "65536", "1-65536", "0-5", "1-2-3", " 1", "1 ", "+1"}) {
        INFO('"' << text << '"');
        const auto range = parse_port_range(text);
        REQUIRE_FALSE(range.has_value());
        CHECK(range.error().code == Errc::invalid_argument);
        CHECK(range.error().context.find('"' + text + '"') != std::string::npos);
        CHECK(range.error().context.find("P-Q") != std::string::npos);
    }
}

TEST_CASE("every first byte belongs to one dialect or to none") {
    for (int byte = 0; byte < 256; ++byte) {
        INFO("byte " << byte);
        const auto kind = classify(static_cast<unsigned char>(byte));
        if (byte <= 8)
            CHECK(kind == DialectKind::c10d);
        else if (byte <= 18)
            CHECK(kind == DialectKind::unknown);
        else if ((byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z'))
            CHECK(kind == DialectKind::http);
        else
            CHECK(kind == DialectKind::native);
    }
}
