#include "launcher/config/shown_arguments.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/native/limits.h"

namespace muster::launcher {

namespace {

constexpr std::string_view hidden = "***";
constexpr std::array secret_names{"token",  "secret",     "password",    "passwd", "pwd",       "passphrase",
                                  "apikey", "credential", "credentials", "auth",   "accesskey", "authorization"};
/// Words before "key" that make it a secret. "--key name" alone is mostly a column or a field.
constexpr std::array key_names{"api", "access", "secret", "private", "auth", "account", "encryption", "wandb"};

template <std::size_t size>
bool is_one_of(std::string_view word, const std::array<const char*, size>& words) {
    return std::ranges::any_of(words, [&](std::string_view one) { return one == word; });
}

/// "--api-key", "HF_TOKEN", "model.hub_token"; not "--max-tokens", "--tokenizer".
bool names_secret(std::string_view name) {
    std::string plain;
    for (const char letter : name) {
        const bool between = letter == '-' || letter == '_' || letter == '.';
        plain += between ? ' ' : static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    }
    const auto words = split(trim(plain), ' ');
    if (words.back() == "key") return words.size() > 1 && is_one_of(words[words.size() - 2], key_names);
    return is_one_of(words.back(), secret_names);
}

/// "s3://user:password@host/x" without "user:password".
std::string without_login(std::string_view word) {
    const auto scheme = word.find("://");
    if (scheme == std::string_view::npos) return std::string(word);
    const auto begin = scheme + 3;
    const auto end = word.substr(begin, word.find('/', begin) - begin).rfind('@');
    if (end == std::string_view::npos) return std::string(word);
    return cat(word.substr(0, begin), hidden, word.substr(begin + end));
}

std::vector<std::string> without_secrets(const std::vector<std::string>& arguments) {
    std::vector<std::string> shown;
    bool is_secret = false;  // True after an option that is a secret and has no '='.
    for (const auto& argument : arguments) {
        const auto equals = argument.find('=');
        const bool is_option = argument.starts_with('-');
        if (std::exchange(is_secret, false) && !argument.starts_with("--")) {  // a secret may begin with '-'
            shown.emplace_back(hidden);
        } else if (equals != std::string::npos && names_secret(std::string_view(argument).substr(0, equals))) {
            shown.push_back(cat(argument.substr(0, equals), '=', hidden));
        } else {
            is_secret = is_option && equals == std::string::npos && names_secret(argument);
            shown.push_back(without_login(argument));
        }
    }
    return shown;
}

bool is_plain(char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 || static_cast<unsigned char>(letter) >= 0x80 ||
           std::string_view("-_./=:,@%+*").find(letter) != std::string_view::npos;
}

std::string as_for_a_shell(std::string_view word) {
    auto line = printable_line(word);
    return !word.empty() && std::ranges::all_of(line, is_plain) ? line : cat('\'', line, '\'');
}

/// FNV-1a with a zero byte after each word.
void add(std::uint64_t& hash, std::string_view word) {
    const auto take = [&hash](unsigned char byte) { hash = (hash ^ byte) * 0x100000001b3U; };
    for (const char letter : word) take(static_cast<unsigned char>(letter));
    take(0);
}

}  // namespace

ShownArguments shown_arguments(std::string_view program, const std::vector<std::string>& arguments) {
    ShownArguments shown{.text = {}, .hash = 0xcbf29ce484222325U};
    add(shown.hash, program);
    std::vector<std::string> words;
    for (const auto& word : without_secrets(arguments)) {
        add(shown.hash, word);
        words.push_back(as_for_a_shell(word));
    }
    shown.hash = std::max<std::uint64_t>(shown.hash, 1);
    shown.text = front_of(join(words, " "), native::arguments_bytes_max);
    return shown;
}

}  // namespace muster::launcher
