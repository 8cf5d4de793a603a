// This node's arguments as the other nodes of a job see them: enough to detect that two jobs use the same id, without
// secrets. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muster::launcher {

struct ShownArguments {
    std::string text;        ///< Quoted for a shell, on one line, truncated to native::arguments_bytes_max.
    std::uint64_t hash = 0;  ///< Hash of the program's name and all arguments. Never 0.
};

/// Text and hash contain "***" for secrets: the value of an option or variable whose name ends in token, secret,
/// password, key or similar (--api-key K, HF_TOKEN=T), and the login of a URL. No secret leaves the node, not even
/// hashed. Two jobs that differ only in secrets look the same.
ShownArguments shown_arguments(std::string_view program, const std::vector<std::string>& arguments);

}  // namespace muster::launcher
