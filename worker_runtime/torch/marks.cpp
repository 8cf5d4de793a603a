#include "worker_runtime/torch/marks.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>

namespace muster::torch_backend {

namespace {

// From the lowest bit: 6 of the kind, 6 of the type, 4 of the reduction; of a message the tag instead of the last. Tags
// of messages are never negative, so they lack the highest bit.
constexpr std::uint32_t is_mark = std::uint32_t{1} << 31;
constexpr std::uint32_t no_combine = 15;

constexpr std::uint32_t message_tag_max = 0x7ffff;

std::string words_of(std::uint32_t mark) {
    const auto kind = static_cast<c10d::OpType>(mark & 63);
    if (kind == c10d::OpType::SEND)
        return std::string(c10::toString(static_cast<at::ScalarType>(mark >> 6 & 63))) + ", tag " +
               std::to_string(mark >> 12 & message_tag_max);
    std::string text = c10d::opTypeToString(kind);
    const auto combine = mark >> 12 & 15;
    if (combine < std::size(combine_names)) text += std::string(" ") + combine_names[combine];
    text += std::string(" of ") + c10::toString(static_cast<at::ScalarType>(mark >> 6 & 63));
    return text;
}

}  // namespace

std::uint32_t mark_of(const Marked& operation) {
    const auto part = [](auto value, std::uint32_t most) { return static_cast<std::uint32_t>(value) & most; };
    return is_mark | part(operation.kind, 63) | part(operation.type, 63) << 6 |
           (operation.combine < 0 ? no_combine : part(operation.combine, 15)) << 12;
}

std::uint32_t mark_of_message(at::ScalarType type, std::uint32_t tag) {
    if (tag > message_tag_max) return tag;
    return is_mark | static_cast<std::uint32_t>(c10d::OpType::SEND) | (static_cast<std::uint32_t>(type) & 63) << 6 |
           tag << 12;
}

std::string with_marks_explained(const std::string& text) {
    constexpr std::string_view before = "tagged ";
    std::string out;
    std::size_t done = 0;
    for (auto at = text.find(before); at != std::string::npos; at = text.find(before, done)) {
        out.append(text, done, at - done);
        char* end = nullptr;
        const auto tag = std::strtoull(text.c_str() + at + before.size(), &end, 10);
        done = static_cast<std::size_t>(end - text.c_str());
        if (tag <= UINT32_MAX && (tag & is_mark) != 0) {
            out += "(" + words_of(static_cast<std::uint32_t>(tag)) + ")";
            continue;
        }
        done = std::max(done, at + before.size());
        out.append(text, at, done - at);
    }
    return out.append(text, done);
}

}  // namespace muster::torch_backend
