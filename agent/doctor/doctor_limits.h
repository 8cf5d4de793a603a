// The limits of muster doctor, and the file that changes them. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::agent {

struct LimitRow {
    std::string_view name;
    std::int64_t value;  ///< The default.
    std::string_view help;
};

/// In the order of the guide.
std::span<const LimitRow> limit_table();

inline constexpr std::int64_t limit_value_max = 1'000'000'000;

class DoctorLimits {
  public:
    /// `name` is one of limit_table().
    [[nodiscard]] std::int64_t of(std::string_view name) const;
    void set(std::string_view name, std::int64_t value) { changed_[std::string(name)] = value; }

  private:
    std::map<std::string, std::int64_t, std::less<>> changed_;
};

/// "NAME = NUMBER" lines (rendezvous/base/system/config_text.h). The error is one sentence with the line's number.
Result<DoctorLimits> parse_limits(std::string_view text);

}  // namespace muster::agent
