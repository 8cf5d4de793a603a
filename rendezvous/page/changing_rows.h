// Rows of JSON with versions, so that a reader gets what changed since its last look. Pure.
//
// The state itself is what is synchronised: a reader that skips ten changes of a row gets the last one, once.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace muster::rendezvous {

class ChangingRows {
  public:
    using Rows = std::vector<std::pair<std::string, std::string>>;
    /// A key and the JSON text of each row that is new or may have changed, and the keys of those that are gone.
    void change(Rows rows, const std::vector<std::string>& gone);
    /// Replaces all rows by these.
    void set(Rows rows);

    /// Grows with each change. 0: nothing was ever set.
    [[nodiscard]] std::uint64_t version() const { return version_; }
    /// {"whole":false,"rows":{KEY:ROW,...},"gone":[KEY,...]}: what changed after that version; whole: the reader drops
    /// what it has. The text is kept until the next change, because most readers are at the same version.
    [[nodiscard]] const std::string& since(std::uint64_t version);

  private:
    struct Row {
        std::string text;
        std::uint64_t changed = 0;
    };
    std::map<std::string, Row> rows_;
    std::deque<std::pair<std::uint64_t, std::string>> gone_;  ///< Removed keys by version, the oldest first.
    std::uint64_t whole_before_ = 1;                          ///< A reader before this version gets all rows.
    std::uint64_t version_ = 0;
    std::map<std::uint64_t, std::string> texts_;  ///< By the version that they follow.
};

}  // namespace muster::rendezvous
