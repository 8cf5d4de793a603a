#include "agent/probes/facts/fact_line.h"

#include <algorithm>
#include <cstdio>

namespace muster::agent {

void print_fact(std::string_view name, std::initializer_list<std::pair<std::string_view, std::string>> fields) {
    std::string line(name);
    for (const auto& [field, value] : fields) {
        line.append("\t").append(field).append("=");
        const auto from = line.size();
        line.append(value);
        std::replace_if(
            line.begin() + static_cast<std::ptrdiff_t>(from), line.end(),
            [](char c) { return c == '\t' || c == '\n' || c == '\r'; }, ' ');
    }
    line.push_back('\n');
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fflush(stdout);
}

}  // namespace muster::agent
