// What the other nodes of a job are told of this node's arguments: enough to see that two jobs share an id by accident,
// and nothing that is secret. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muster::launcher {

struct ShownArguments {
    std::string text;        ///< as a shell takes them, on one line, cut to native::arguments_bytes_max
    std::uint64_t hash = 0;  ///< of the program's name and of all arguments; never 0
};

/// Secrets are "***" in both: the value of an option or a variable whose name ends in token, secret, password, key and
/// the like (--api-key K, HF_TOKEN=T), and the login of a URL. So a secret never leaves the node, in no form, and two
/// jobs that differ in nothing else are taken for one.
ShownArguments shown_arguments(std::string_view program, const std::vector<std::string>& arguments);

}  // namespace muster::launcher
