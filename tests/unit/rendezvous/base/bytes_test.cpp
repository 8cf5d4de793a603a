#include "rendezvous/base/text/bytes.h"

#include "tests/support/catch.h"

using namespace muster;

TEST_CASE("what a writer wrote a reader reads") {
    std::string bytes;
    ByteWriter writer(bytes);
    writer.number<std::uint8_t>(7);
    writer.number<std::int64_t>(-2);
    writer.blob<std::uint32_t>("abc");
    ByteReader reader(bytes);
    CHECK(reader.number<std::uint8_t>() == 7);
    CHECK(reader.number<std::int64_t>() == -2);
    CHECK(reader.blob<std::uint32_t>(3) == "abc");
    CHECK(reader.finished());
}

TEST_CASE("every truncation fails and stays failed") {
    std::string bytes;
    ByteWriter writer(bytes);
    writer.number<std::uint16_t>(1);
    writer.blob<std::uint64_t>("hello");
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        ByteReader reader(std::string_view(bytes).substr(0, size));
        reader.number<std::uint16_t>();
        reader.blob<std::uint64_t>(100);
        CHECK_FALSE(reader.ok());
        CHECK(reader.number<std::uint8_t>() == 0);
    }
}

TEST_CASE("a length beyond the limit fails before any byte is taken") {
    std::string bytes;
    ByteWriter(bytes).blob<std::uint64_t>("hello");
    ByteReader reader(bytes);
    CHECK(reader.blob<std::uint64_t>(4).empty());
    CHECK_FALSE(reader.ok());
}
