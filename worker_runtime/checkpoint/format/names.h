// The names of folders in a checkpoint directory, and which of them are kept. Pure.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::runtime {

/// "00120" for 120 in five digits; a longer number as it is.
std::string in_digits(std::uint64_t number, std::size_t digits);

/// "step_00000120", or "step_00000120.2" for the second one of a step: after a checkpoint turned out to be damaged,
/// training has come by its step again. Nothing is ever written in the place of another.
struct CheckpointName {
    std::int64_t step = 0;
    int edition = 1;
    auto operator<=>(const CheckpointName&) const = default;
};
std::string to_string(const CheckpointName& name);
std::optional<CheckpointName> parse_checkpoint_name(std::string_view text);

/// "step_00000120.tmp-7-5eed1234": being written in round 7; the digits belong to one opening of the directory.
struct DraftName {
    std::int64_t step = 0;
    std::int64_t round = 0;
    std::string nonce;
    friend bool operator==(const DraftName&, const DraftName&) = default;
};
std::string to_string(const DraftName& name);
std::optional<DraftName> parse_draft_name(std::string_view text);

/// "step_00000120.rank_00003.safetensors": a rank's file on a disk of its host.
struct LocalName {
    std::int64_t step = 0;
    int rank = 0;
};
std::string to_string(const LocalName& name);
/// Nothing for a name of another kind, or of a file that was not finished.
std::optional<LocalName> parse_local_name(std::string_view text);

/// A folder that is on its way out: ".trash-" and its former name.
inline constexpr std::string_view trash_prefix = ".trash-";

struct Retention {
    int last = 2;
    std::int64_t every = 0;  ///< also the newest edition of each step that is a multiple; 0: none
};

struct KeptCheckpoint {
    CheckpointName name;
    bool verified = false;  ///< written, or read and found whole, by this process
    bool damaged = false;   ///< found not to be whole
};

/// Those of `all` that may go: neither among the newest `last` of those that are not damaged, nor due to `every`, nor
/// the newest one that is verified. A damaged one is for a person to look at: it does not count, and does not go.
std::vector<CheckpointName> expendable(std::vector<KeptCheckpoint> all, const Retention& retention);

}  // namespace muster::runtime
