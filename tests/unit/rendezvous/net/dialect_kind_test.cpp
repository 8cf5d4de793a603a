#include "rendezvous/net/station.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;

TEST_CASE("every first byte belongs to one dialect or to none") {
    for (int byte = 0; byte < 256; ++byte) {
        INFO("byte " << byte);
        const auto kind = classify(static_cast<unsigned char>(byte));
        if (byte <= 8)
            CHECK(kind == DialectKind::c10d);
        else if (byte <= 18)
            CHECK(kind == DialectKind::unknown);
        else if (byte == 0x16)
            CHECK(kind == DialectKind::tls);
        else if ((byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z'))
            CHECK(kind == DialectKind::http);
        else
            CHECK(kind == DialectKind::native);
    }
}
