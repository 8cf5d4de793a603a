#include "agent/supervision/macros.h"

namespace muster::agent {

namespace {

bool starts_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool continues_name(char c) {
    return starts_name(c) || (c >= '0' && c <= '9');
}

/// The name at the front of `text`; empty if there is none.
std::string_view leading_name(std::string_view text) {
    std::size_t size = 0;
    while (size < text.size() && (size == 0 ? starts_name(text[size]) : continues_name(text[size]))) ++size;
    return text.substr(0, size);
}

}  // namespace

std::string substitute_macros(std::string_view text, const MacroValues& values) {
    std::string out;
    while (!text.empty()) {
        const auto dollar = text.find('$');
        out.append(text.substr(0, dollar));
        if (dollar == std::string_view::npos) break;
        text.remove_prefix(dollar);
        const auto rest = text.substr(1);
        const bool braced = rest.starts_with('{');
        const auto name = leading_name(braced ? rest.substr(1) : rest);
        const bool closed = !braced || rest.substr(1 + name.size()).starts_with('}');
        const auto found = values.find(name);
        std::size_t taken = 1;
        if (rest.starts_with('$')) {
            taken = 2;
            out.push_back('$');
        } else if (!name.empty() && closed && found != values.end()) {
            taken = 1 + name.size() + (braced ? 2 : 0);
            out.append(found->second);
        } else {
            out.push_back('$');
        }
        text.remove_prefix(taken);
    }
    return out;
}

}  // namespace muster::agent
