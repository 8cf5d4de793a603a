#include "launcher/commands/command_words.h"

#include <algorithm>

#include "rendezvous/base/text/text.h"

namespace muster::launcher {

Result<std::vector<std::string>> read_words(std::string_view verb, const std::vector<std::string>& words,
                                            const std::vector<WordOption>& options) {
    std::vector<std::string> others;
    for (std::size_t at = 0; at < words.size(); ++at) {
        const std::string_view word = words[at];
        if (word.empty())
            return wrong(
                cat("an argument is empty, perhaps a variable that is not set (see muster ", verb, " --help)"));
        if (!word.starts_with('-')) {
            others.emplace_back(word);
            continue;
        }
        const auto name = word.substr(0, word.starts_with("--") ? word.find('=') : word.size());
        const bool has_value = name.size() < word.size();
        const auto option = std::ranges::find(options, name, &WordOption::name);
        const bool is_flag = option != options.end() && std::holds_alternative<bool*>(option->into);
        if (option == options.end() || (is_flag && has_value))
            return wrong(cat("unknown option '", word, "' (see muster ", verb, " --help)"));
        if (is_flag) {
            *std::get<bool*>(option->into) = true;
            continue;
        }
        std::string value(has_value ? word.substr(name.size() + 1) : "");
        if (!has_value) {
            if (at + 1 == words.size()) return wrong(cat(name, ": a value is missing (see muster ", verb, " --help)"));
            value = words[++at];
        }
        if (value.empty()) return wrong(cat(name, ": the value is empty; leave the option out, or give it one"));
        if (auto* const* text = std::get_if<std::string*>(&option->into))
            **text = std::move(value);
        else if (auto taken = std::get<WordOption::Take>(option->into)(value); !taken)
            return taken.error();
    }
    return others;
}

}  // namespace muster::launcher
