// What one look at this machine found. A look is a program with a deadline (muster-facts, muster-gpus --health): it
// prints one record a line, and "end" as its last line. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::agent {

/// "disk\tpath=/tmp\tfree=42": a name and its fields.
struct FactRecord {
    std::string name;
    std::map<std::string, std::string, std::less<>> fields;

    /// Empty if the record does not have it.
    [[nodiscard]] const std::string& text(std::string_view field) const;
    /// Nothing if the record does not have it, or if it is not a number.
    [[nodiscard]] std::optional<std::int64_t> number(std::string_view field) const;
};

/// How findings name a GPU, by its record "gpu": "GPU 3 (0000:e3:00.0, GPU-7f...)".
std::string gpu_label(const FactRecord& gpu);

struct Look {
    enum class State { not_taken, done, cut };
    State state = State::not_taken;
    std::string why;  ///< Why it was cut: "no answer within 2 s", "no whole answer: it ended early".
    std::vector<FactRecord> records;

    /// The records of that name, in the order of the output.
    [[nodiscard]] std::vector<const FactRecord*> all(std::string_view name) const;
    /// The first record of that name. Null: there is none.
    [[nodiscard]] const FactRecord* first(std::string_view name) const;
};

/// Of a look that printed `output`. Without "end" it was cut: `why_cut` says by what, unless it did not start ("note
/// WHY"). Records that are complete count anyway.
Look parse_look(std::string_view output, std::string why_cut);

inline constexpr std::size_t look_records_max = 16'384;

}  // namespace muster::agent
