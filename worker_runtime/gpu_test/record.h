// Prints records that agent/doctor/look.h parses: "NAME<tab>FIELD=VALUE...". Each is written at once, because the next
// step may hang.
#pragma once

#include <stdio.h>

#include <string>
#include <string_view>

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

std::string field(std::string_view name, const auto& value) {
    auto text = cat(value);
    for (char& c : text)
        if (c == '\t' || c == '\n' || c == '\r') c = ' ';
    return cat('\t', name, '=', text);
}

inline void print_record(const std::string& record) {
    ::printf("%s\n", record.c_str());
    ::fflush(stdout);
}

}  // namespace muster::runtime
