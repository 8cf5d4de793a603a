#include "agent/supervision/macros.h"

#include "tests/support/catch.h"

using namespace muster::agent;

TEST_CASE("macros are replaced as Python's string.Template does it") {
    // Right column: string.Template(left).safe_substitute(local_rank=3), Python 3.11.
    const std::vector<std::pair<const char*, const char*>> rows = {
        {"", ""},
        {"plain", "plain"},
        {"$local_rank", "3"},
        {"${local_rank}", "3"},
        {"a${local_rank}b$local_rank", "a3b3"},
        {"$local_rank_x", "$local_rank_x"},
        {"$local_rank-x", "3-x"},
        {"${local_rank", "${local_rank"},
        {"${local_rank }", "${local_rank }"},
        {"${ local_rank}", "${ local_rank}"},
        {"${other}", "${other}"},
        {"$other $local_rank", "$other 3"},
        {"$", "$"},
        {"$$", "$"},
        {"$$$", "$$"},
        {"$$$$", "$$"},
        {"$$local_rank", "$local_rank"},
        {"$$$local_rank", "$3"},
        {"$${local_rank}", "${local_rank}"},
        {"100$", "100$"},
        {"$5", "$5"},
        {"$LOCAL_RANK", "$LOCAL_RANK"},
        {"${}", "${}"},
        {"${${local_rank}}", "${3}"},
        {"$_local_rank", "$_local_rank"},
        {"$local_rank\xc3\xa9", "3\xc3\xa9"},
    };
    for (const auto& [text, expected] : rows) {
        INFO(text);
        CHECK(substitute_macros(text, {{"local_rank", "3"}}) == expected);
    }
}
