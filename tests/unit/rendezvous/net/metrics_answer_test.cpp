#include "rendezvous/dialects/metrics_answer.h"

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

/// Of so many bytes, with numbers that all differ.
std::string page_of(std::size_t bytes) {
    std::string page;
    for (std::uint64_t i = 1; page.size() < bytes; ++i)
        page += cat("muster_job_time_seconds_total{job=\"llama-70b-sft-", i % 50, "\",bucket=\"",
                    i * i * 7919 % 104'729, "\"} ", i * i * i % 999'983, ".", i % 7, "\n");
    page.resize(bytes);
    return page;
}

HttpPage answer(const std::string& accept_encoding, const std::string& page) {
    const auto asked = cat("GET /metrics HTTP/1.1\r\nHost: a\r\nAccept-Encoding: ", accept_encoding, "\r\n\r\n");
    const auto parsed = parse_http_request(asked, 8192);
    REQUIRE(parsed.has_value());
    REQUIRE(parsed->has_value());
    return metrics_answer(**parsed, [&](MetricsFormat) { return page; });
}

}  // namespace

TEST_CASE("a large page goes by gzip to who accepts it, and any gunzip reads it") {
    const test::ScratchFolder folder;
    for (const auto size : {plain_metrics_bytes_max + 1, std::size_t{2} << 20}) {
        const auto page = page_of(size);
        for (const auto* accepts : {"gzip", "deflate, GZIP;q=0.5", "gzip; q=1.0,identity"}) {
            const auto sent = answer(accepts, page);
            CHECK(sent.encoding == "gzip");
            CHECK(http_response(sent, "GET").find("\r\nContent-Encoding: gzip\r\n") != std::string::npos);
            CHECK(sent.body.size() < size / 2);
            const auto packed = folder / "page.gz", plain = folder / "page";
            std::ofstream(packed, std::ios::binary) << sent.body;
            REQUIRE(std::system(cat("gzip -dc '", packed, "' > '", plain, "'").c_str()) == 0);
            std::ifstream read(plain, std::ios::binary);
            CHECK((std::string(std::istreambuf_iterator(read), {}) == page));
        }
    }
}

TEST_CASE("a small page goes as it is, and so does a large one to who accepts no gzip") {
    const auto small = page_of(plain_metrics_bytes_max), large = page_of(plain_metrics_bytes_max + 1);
    CHECK((answer("gzip", small).encoding.empty() && answer("gzip", small).body == small));
    for (const auto* accepts : {"", "identity", "gzip;q=0", "gzip; q=0.000", "x-gzip2", "deflate"}) {
        INFO(accepts);
        CHECK((answer(accepts, large).encoding.empty() && answer(accepts, large).body == large));
    }
    CHECK(http_response(answer("", large), "GET").find("Content-Encoding") == std::string::npos);
}
