// What a disk may hold after a power cut, from a record of what was done to it.
//
// The model promises what POSIX does and no more. A file's contents are durable as they were at its last fsync; what
// was written since may be there, be lost, or be there by half. A name that was made, moved or removed in a folder is
// durable after an fsync of that folder; until then each such change may have reached the disk or not, whatever became
// of those before it. (A rename is one change: all of it or nothing.) File systems with a journal promise more; NFS,
// and what is mounted tomorrow, may not.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace muster::test {

/// One thing done to the disk. Files and folders are numbers; 0 is the folder that all lies in.
struct DiskEvent {
    enum class Kind { make_folder, make_file, contents, rename, remove, flush };
    Kind kind = Kind::flush;
    int folder = 0;                  ///< where the name is; of contents and flush: the file or folder itself
    int node = 0;                    ///< what the name is of
    std::string name{}, new_name{};  ///< rename: within the folder
    std::string contents{};          ///< all of the file's
    std::string what{};              ///< flush: which kind of fsync it is
    std::int64_t safe_before = 0;    ///< the last step that had been told to be safe just before
};

/// The files of one state of the disk, by path; folders end with '/' and have no contents.
using DiskState = std::map<std::string, std::string>;

class DiskModel {
  public:
    DiskModel() : nodes_(1) { nodes_[0].folder = true; }

    void apply(const DiskEvent& event);

    /// Calls `visit` with states that a power cut now may leave; the same one may come several times. Of up to 10
    /// changes of names that are not durable all subsets come, of more those that lack one or have one, of each
    /// beginning of the sequence. Ends when `visit` gives false, and gives that.
    bool for_each_state(const std::function<bool(const DiskState&)>& visit) const;

  private:
    struct Change {
        std::string gone;  ///< empty: none
        std::string made;  ///< empty: none
        int node = 0;
        std::uint64_t when = 0;
    };
    struct Node {
        bool folder = false;
        std::map<std::string, int> names;  ///< durable
        std::vector<Change> changes;       ///< not yet durable
        std::string durable, contents;
    };
    struct Cut;

    std::vector<int> reachable() const;
    Node& at(int node);

    std::vector<Node> nodes_;
    std::uint64_t time_ = 0;
};

}  // namespace muster::test
