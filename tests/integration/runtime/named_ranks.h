// The ranks that a failure speaks of, as an agent reads them.
#pragma once

#include <regex>
#include <set>
#include <string>

namespace muster::test {

inline std::set<int> named_in(const std::string& text) {
    static const std::regex rank("rank ([0-9]+) \\(pid ");
    std::set<int> ranks;
    for (std::sregex_iterator one(text.begin(), text.end(), rank), end; one != end; ++one)
        ranks.insert(std::stoi((*one)[1]));
    return ranks;
}

}  // namespace muster::test
