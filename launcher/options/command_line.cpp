#include "launcher/options/command_line.h"

#include <algorithm>
#include <cctype>

#include "rendezvous/base/text/nearest.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

/// -5 and -.5 are values, because no option of muster looks like a number.
bool is_negative_number(std::string_view word) {
    word.remove_prefix(1);
    const auto dot = word.find('.');
    const auto whole = word.substr(0, dot);
    const auto fraction = dot == std::string_view::npos ? std::string_view{} : word.substr(dot + 1);
    const auto digits = [](std::string_view text) { return std::ranges::all_of(text, ::isdigit); };
    return digits(whole) && digits(fraction) && !(dot == std::string_view::npos ? whole : fraction).empty();
}

const OptionRow* option_of_letter(char letter) {
    for (const auto& row : option_table())
        if (row.letter == letter) return &row;
    return nullptr;
}

/// `name` is `written` without dashes in front.
std::string unknown_option(std::string_view written, std::string_view name) {
    std::vector<std::string> known;
    for (const auto& row : option_table()) known.emplace_back(row.name);
    const auto near = nearest(name, known);
    return cat("unknown option '", written, "'", near.empty() ? "" : "; the nearest known option is --", near,
               " (muster --help lists all)");
}

/// True for a word that must be an option (argparse's 'O'). Other words may be values or the program.
bool looks_like_option(std::string_view word) {
    if (word.size() < 2 || word[0] != '-') return false;
    if (is_negative_number(word)) return false;
    if (word.find(' ') == std::string_view::npos) return true;
    // A word with a blank is an option only if the part before '=' names one.
    const auto equals = word.find('=');
    if (equals == std::string_view::npos || word[1] != '-')
        return option_of_letter(word[1]) != nullptr && word[1] != '-';
    return std::holds_alternative<const OptionRow*>(option_named(word.substr(2, equals - 2)));
}

class Reader {
  public:
    explicit Reader(const std::vector<std::string>& words) : words_(words) {}

    std::variant<CommandLine, CommandLineError> read() {
        while (at_ < words_.size() && error_.empty()) {
            const std::string& word = words_[at_];
            if (word == "--") {
                ++at_;
                if (at_ < words_.size()) take_program();
                break;
            }
            if (!looks_like_option(word)) {
                take_program();
                break;
            }
            ++at_;
            if (word.starts_with("--"))
                read_long(word);
            else
                read_letters(word);
        }
        if (!error_.empty()) return CommandLineError{error_, std::move(line_)};
        return std::move(line_);
    }

  private:
    void take_program() {
        line_.has_program = true;
        line_.program = words_[at_];
        line_.arguments.assign(words_.begin() + static_cast<std::ptrdiff_t>(at_) + 1, words_.end());
        at_ = words_.size();
    }

    void read_long(std::string_view word) {
        const auto equals = word.find('=');
        const auto name = word.substr(2, equals == std::string_view::npos ? equals : equals - 2);
        const auto found = option_named(name);
        if (const auto* why = std::get_if<std::string>(&found)) {
            error_ = *why;
            return;
        }
        const auto& row = *std::get<const OptionRow*>(found);
        if (equals == std::string_view::npos) {
            take(row, cat("--", row.name));
        } else if (row.kind == ValueKind::flag) {
            error_ =
                cat("--", row.name, ": got '", word.substr(equals + 1), "', but it takes no value; write --", row.name);
        } else {
            line_.options.push_back({&row, std::string(word.substr(equals + 1))});
        }
    }

    /// "-t3", "-t=3", "-t 3", "-m", "-mt3".
    void read_letters(std::string_view word) {
        for (std::size_t at = 1; at < word.size(); ++at) {
            const auto* row = option_of_letter(word[at]);
            if (row == nullptr) {
                error_ = unknown_option(word, word.substr(1));
                return;
            }
            if (row->kind == ValueKind::flag) {
                line_.options.push_back({row, "1"});
                continue;
            }
            auto value = word.substr(at + 1);
            if (value.empty()) {
                take(*row, cat('-', row->letter));
            } else {
                if (value.starts_with('=')) value.remove_prefix(1);
                line_.options.push_back({row, std::string(value)});
            }
            return;
        }
    }

    /// Reads a flag, or an option whose value is the next word.
    void take(const OptionRow& row, const std::string& written) {
        if (row.kind == ValueKind::flag) {
            line_.options.push_back({&row, "1"});
            return;
        }
        if (at_ < words_.size() && words_[at_] == "--") ++at_;
        if (at_ == words_.size() || looks_like_option(words_[at_])) {
            const auto got = at_ == words_.size() ? std::string("nothing") : cat("the option '", words_[at_], "'");
            error_ = cat(written, ": a value is missing, got ", got, "; write --", row.name, "=", row.metavar);
            return;
        }
        line_.options.push_back({&row, words_[at_]});
        ++at_;
    }

    const std::vector<std::string>& words_;
    std::size_t at_ = 0;
    CommandLine line_;
    std::string error_;
};

std::vector<const OptionRow*> rows_beginning_with(std::string_view prefix, Origin origin) {
    std::vector<const OptionRow*> fitting;
    for (const auto& row : option_table())
        if (row.origin == origin && row.name.starts_with(prefix)) fitting.push_back(&row);
    return fitting;
}

}  // namespace

std::variant<CommandLine, CommandLineError> read_command_line(const std::vector<std::string>& words) {
    return Reader(words).read();
}

std::variant<const OptionRow*, std::string> option_named(std::string_view name) {
    std::string dashed(name);
    std::ranges::replace(dashed, '_', '-');
    if (const auto* exact = find_option(dashed)) return exact;
    auto fitting = dashed.empty() ? std::vector<const OptionRow*>{} : rows_beginning_with(dashed, Origin::torchrun);
    if (fitting.size() == 1) return fitting.front();
    if (!dashed.empty())
        for (const auto* row : rows_beginning_with(dashed, Origin::muster)) fitting.push_back(row);
    if (fitting.size() == 1) return fitting.front();
    if (!fitting.empty()) {
        std::vector<std::string> known;
        for (const auto* row : fitting) known.push_back(cat("--", row->name));
        return cat("option '--", name, "' is ambiguous; it could be ", join(known, ", "));
    }
    return unknown_option(cat("--", name), dashed);
}

}  // namespace muster::launcher
