#include "rendezvous/base/host_list.h"

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

namespace muster {

namespace {

std::string hosts(std::string_view text) {
    const auto parsed = parse_host_list(text);
    if (!parsed) return cat("! ", parsed.error().context);
    return join(*parsed, " ");
}

}  // namespace

TEST_CASE("host lists expand as Slurm expands them") {
    CHECK(hosts("gpu07") == "gpu07");
    CHECK(hosts("a,b,a") == "a b a");
    CHECK(hosts("gpu[1-3]") == "gpu1 gpu2 gpu3");
    CHECK(hosts("gpu[08-11]") == "gpu08 gpu09 gpu10 gpu11");
    CHECK(hosts("gpu[098-101,7]") == "gpu098 gpu099 gpu100 gpu101 gpu7");
    CHECK(hosts("n[9-10]") == "n9 n10");
    CHECK(hosts("gpu[1-2]-ib,login") == "gpu1-ib gpu2-ib login");
    CHECK(hosts("r[1-2]n[1-2]") == "r1n1 r1n2 r2n1 r2n2");
    CHECK(hosts("n[1-2,1[0-2]]") == "n1 n2 n10 n11 n12");
    CHECK(hosts("[a,b[1-2]]x") == "ax b1x b2x");
    CHECK(hosts("tux[1-2],dev[3,5-6],head") == "tux1 tux2 dev3 dev5 dev6 head");
    CHECK(hosts("node-1-[2-3].example.org") == "node-1-2.example.org node-1-3.example.org");
}

TEST_CASE("a host list that does not read is refused with the place") {
    CHECK(hosts("") == "! at character 1: a host name is missing");
    CHECK(hosts("a,,b") == "! at character 3: a host name is missing");
    CHECK(hosts("a,") == "! at character 3: a host name is missing");
    CHECK(hosts("gpu[1-3") == "! at character 4: '[' without ']'");
    CHECK(hosts("gpu1-3]") == "! at character 7: ']' without '['");
    CHECK(hosts("gpu[]") == "! at character 5: a host name is missing");
    CHECK(hosts("gpu[3-1]") == "! at character 5: a descending range");
    CHECK(hosts("gpu[1-010]") == "! at character 5: a range with ends of different width");
    CHECK(hosts("gpu 1") == "! at character 4: a character that is not allowed in a host name");
    CHECK(hosts("n[1-9999999]") == "! at character 3: more than 100000 hosts");
    CHECK(hosts("a[1-1000]b[1-1000]") == "! at character 19: more than 100000 hosts");
    CHECK(hosts("n[1-99999999999999999999]") == "! at character 3: a number with too many digits");
    CHECK(hosts("[[[[[[[[[[1]]]]]]]]]]").find("nested too deeply") != std::string::npos);
}

}  // namespace muster
