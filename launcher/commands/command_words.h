// Reads the words of a subcommand: its options, and what stands between them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::launcher {

struct WordOption {
    using Take = std::function<Result<void>(const std::string& value)>;
    std::string_view name;                         ///< "--step" or "-n".
    std::variant<bool*, std::string*, Take> into;  ///< A flag is bool; all others have a value.
};

/// A refusal of a command's words: a sentence for the user.
inline Error wrong(std::string why) {
    return {Errc::invalid_argument, std::move(why)};
}

/// Fills in the options, "--name VALUE" or "--name=VALUE", and returns the other words in order. Of a repeated option
/// the last one counts. Errors are sentences for the user: an empty word, an unknown option, a missing or empty value,
/// or what Take returns.
Result<std::vector<std::string>> read_words(std::string_view verb, const std::vector<std::string>& words,
                                            const std::vector<WordOption>& options);

}  // namespace muster::launcher
