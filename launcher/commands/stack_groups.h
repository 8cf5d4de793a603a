// Of thousands of workers that wait in one place, and the one that does not, two groups are to be read.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace muster::launcher {

class StackGroups {
  public:
    /// An agent's answer to GET /stacks: "rank 3:", then indented lines of it. Without a rank no worker runs on `node`.
    void add(const std::string& node, std::string_view answer);
    /// Workers with the same frames, whatever their threads' ids are, are one group. The smaller groups come first:
    /// whoever holds up the others is mostly alone. Lines are safe for a terminal.
    [[nodiscard]] std::string text() const;
    [[nodiscard]] bool has_worker() const { return !groups_.empty(); }

  private:
    struct Group {
        std::string frames;  ///< Of the first one, with its threads' ids.
        std::set<std::uint32_t> ranks;
        std::vector<std::string> nodes;
    };

    std::map<std::string, Group> groups_;  ///< By their frames without ids.
    std::vector<std::string> resting_;     ///< Nodes without workers.
};

}  // namespace muster::launcher
