#include "agent/output/line_splitter.h"

#include <algorithm>
#include <utility>

namespace muster::agent {

void LineSplitter::add(std::string_view chunk) {
    rest_ = chunk;
    next_return_ = std::min(rest_.find('\r'), rest_.size());
}

bool LineSplitter::next(std::string_view& line) {
    while (!rest_.empty()) {
        if (std::exchange(after_return_, false) && rest_.front() == '\n') {
            end_line(0);
            if (rest_.empty()) return false;
        }
        const auto newline = rest_.substr(0, next_return_).find('\n');
        const bool returned = newline == std::string_view::npos && next_return_ < rest_.size();
        const auto size = std::min(newline, returned ? next_return_ : rest_.size());
        const auto room = line_max_bytes_ - partial_.size();
        if (size > room) {  // too long: cut here; what follows has no line end to take away
            line = rest_.substr(0, room);
            rest_.remove_prefix(room);
            next_return_ -= std::min(next_return_, room);
            if (!partial_.empty()) line = whole_ = std::exchange(partial_, {}).append(line);
            return true;
        }
        if (size == rest_.size()) {
            partial_.append(rest_);
            rest_ = {};
            return false;
        }
        line = end_line(size);
        after_return_ = returned;
        if (returned && line.empty()) continue;
        return true;
    }
    return false;
}

std::string_view LineSplitter::end_line(std::size_t size) {
    auto line = rest_.substr(0, size);
    rest_.remove_prefix(size + 1);
    if (next_return_ > size)
        next_return_ -= size + 1;
    else
        next_return_ = std::min(rest_.find('\r'), rest_.size());
    if (partial_.empty()) return line;
    whole_ = std::exchange(partial_, {}).append(line);
    return whole_;
}

}  // namespace muster::agent
