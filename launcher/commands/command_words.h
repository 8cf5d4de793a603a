// Reads the words of a subcommand: its options, and what stands between them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::launcher {

struct WordOption {
    using Take = std::function<Result<void>(const std::string& value)>;
    std::string_view name;                         ///< "--step" or "-n".
    std::variant<bool*, std::string*, Take> into;  ///< A flag is bool; all others have a value.
};

/// Fills in the options, "--name VALUE" or "--name=VALUE", and returns the other words in order. Of a repeated option
/// the last one counts. Errors are sentences for the user: an unknown option, a missing value, or what Take returns.
Result<std::vector<std::string>> read_words(std::string_view verb, const std::vector<std::string>& words,
                                            const std::vector<WordOption>& options);

}  // namespace muster::launcher
