#include "rendezvous/base/host_list.h"

#include <algorithm>
#include <charconv>

#include "rendezvous/base/text/text.h"

namespace muster {

namespace {

constexpr int depth_max = 8;
constexpr std::size_t digits_max = 18;  // of a number, to fit into 64 bits
constexpr std::size_t name_bytes_max = 255;

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

using Names = std::vector<std::string>;

class Reader {
  public:
    explicit Reader(std::string_view text) : text_(text) {}

    Result<Names> whole() {
        auto names = items(0);
        if (names && at_ < text_.size()) return wrong("']' without '['");
        return names;
    }

  private:
    [[nodiscard]] char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
    [[nodiscard]] Error wrong(std::string_view what) const {
        return {Errc::invalid_argument, cat("at character ", at_ + 1, ": ", what)};
    }

    /// Items up to the end or to the closing ']'.
    Result<Names> items(int depth) {
        Names all;
        for (;;) {
            auto some = depth > 0 ? entry(depth) : item(depth);
            if (!some) return some;
            if (all.size() + some->size() > host_count_max) return too_many();
            all.insert(all.end(), std::make_move_iterator(some->begin()), std::make_move_iterator(some->end()));
            if (next() != ',') return all;
            ++at_;
        }
    }
    [[nodiscard]] Error too_many() const { return wrong(cat("more than ", host_count_max, " hosts")); }

    /// A range if the text up to ',' or ']' is one, else an item as outside of brackets.
    Result<Names> entry(int depth) {
        const auto end = std::min(text_.find_first_of(",[]", at_), text_.size());
        const auto word = text_.substr(at_, end - at_);
        const auto dash = word.find('-');
        const auto is_number = [](std::string_view part) {
            return !part.empty() && std::all_of(part.begin(), part.end(), is_digit);
        };
        if (next() == '[' || (end < text_.size() && text_[end] == '[') || dash == std::string_view::npos ||
            !is_number(word.substr(0, dash)) || !is_number(word.substr(dash + 1)))
            return item(depth);
        return range(word.substr(0, dash), word.substr(dash + 1));
    }

    Result<Names> range(std::string_view first, std::string_view last) {
        if (first.size() > digits_max || last.size() > digits_max) return wrong("a number with too many digits");
        if (last.size() != first.size() && last.front() == '0') return wrong("a range with ends of different width");
        std::uint64_t low = 0;
        std::uint64_t high = 0;
        std::from_chars(first.data(), first.data() + first.size(), low);
        std::from_chars(last.data(), last.data() + last.size(), high);
        if (low > high) return wrong("a descending range");
        if (high - low >= host_count_max) return too_many();
        Names names;
        for (auto number = low; number <= high; ++number) {
            auto digits = cat(number);
            if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
            names.push_back(std::move(digits));
        }
        at_ += first.size() + 1 + last.size();
        return names;
    }

    Result<Names> item(int depth) {
        Names names{""};
        const auto begin = at_;
        for (; at_ < text_.size() && next() != ',' && next() != ']';) {
            Names tails;
            if (next() == '[') {
                if (depth >= depth_max) return wrong("brackets nested too deeply");
                const auto open = at_++;
                auto inner = items(depth + 1);
                if (!inner) return inner;
                if (next() != ']') {
                    at_ = open;
                    return wrong("'[' without ']'");
                }
                ++at_;
                tails = std::move(*inner);
            } else {
                const auto end = std::min(text_.find_first_of(",[]", at_), text_.size());
                const auto word = text_.substr(at_, end - at_);
                const auto bad = std::find_if(word.begin(), word.end(), [](char c) { return c <= ' ' || c > '~'; });
                at_ += static_cast<std::size_t>(bad - word.begin());
                if (bad != word.end()) return wrong("a character that is not allowed in a host name");
                tails.emplace_back(word);
            }
            if (names.size() * tails.size() > host_count_max) return too_many();
            Names longer;
            for (const auto& name : names)
                for (const auto& tail : tails) {
                    longer.push_back(name + tail);
                    if (longer.back().size() > name_bytes_max) return wrong("a host name of more than 255 bytes");
                }
            names = std::move(longer);
        }
        if (at_ == begin) return wrong("a host name is missing");
        return names;
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

}  // namespace

Result<std::vector<std::string>> parse_host_list(std::string_view text) {
    return Reader(text).whole();
}

}  // namespace muster
