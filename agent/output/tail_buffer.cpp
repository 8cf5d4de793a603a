#include "agent/output/tail_buffer.h"

#include <utility>

namespace muster::agent {

void TailBuffer::add(std::string_view bytes) {
    if (bytes.size() >= size_max_) {
        cut_ = cut_ || !kept_.empty() || bytes.size() > size_max_;
        kept_.assign(bytes.substr(bytes.size() - size_max_));
        return;
    }
    if (kept_.size() + bytes.size() > 2 * size_max_) {
        kept_.erase(0, kept_.size() - size_max_);
        cut_ = true;
    }
    kept_.append(bytes);
}

std::string TailBuffer::take() {
    auto tail = std::exchange(kept_, {});
    if (tail.size() > size_max_) {
        tail.erase(0, tail.size() - size_max_);
        cut_ = true;
    }
    if (!std::exchange(cut_, false)) return tail;
    const auto line_end = tail.find('\n');
    if (line_end != std::string::npos && line_end + 1 < tail.size()) tail.erase(0, line_end + 1);
    return tail;
}

}  // namespace muster::agent
