// The names of folders in a checkpoint directory, and the retention rule. Pure.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::runtime {

/// Formats a number with leading zeros, such as "00120" for 120 and five digits. A longer number is not cut.
std::string in_digits(std::uint64_t number, std::size_t digits);

/// "step_00000120", or "step_00000120.2" for a second checkpoint of that step: training can reach a step again after a
/// checkpoint turned out to be damaged. No checkpoint is ever overwritten.
struct CheckpointName {
    std::int64_t step = 0;
    int edition = 1;
    auto operator<=>(const CheckpointName&) const = default;
};
std::string to_string(const CheckpointName& name);
std::optional<CheckpointName> parse_checkpoint_name(std::string_view text);

/// "step_00000120.tmp-7-5eed1234": a draft of round 7; the last part is the token of one opening of the directory.
struct DraftName {
    std::int64_t step = 0;
    std::int64_t round = 0;
    std::string nonce;
    friend bool operator==(const DraftName&, const DraftName&) = default;
};
std::string to_string(const DraftName& name);
std::optional<DraftName> parse_draft_name(std::string_view text);

/// "step_00000120.rank_00003.safetensors": a rank's file on its host's disk.
struct LocalName {
    std::int64_t step = 0;
    int rank = 0;
};
std::string to_string(const LocalName& name);
/// Returns nothing for other names and for unfinished files.
std::optional<LocalName> parse_local_name(std::string_view text);

/// A folder that is being removed has this prefix before its former name.
inline constexpr std::string_view trash_prefix = ".trash-";

struct Retention {
    int last = 2;
    std::int64_t every = 0;  ///< also keep the newest edition of each step that is a multiple of this; 0: none
};

struct KeptCheckpoint {
    CheckpointName name;
    bool verified = false;  ///< written, or read and found complete, by this process
    bool damaged = false;   ///< found incomplete
};

/// Returns those of `all` that may be removed: not among the newest `last` undamaged ones, not kept by `every`, and not
/// the newest verified one. Damaged ones are kept for inspection and do not count.
std::vector<CheckpointName> expendable(std::vector<KeptCheckpoint> all, const Retention& retention);

}  // namespace muster::runtime
