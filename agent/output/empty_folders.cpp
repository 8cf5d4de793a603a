#include "agent/output/empty_folders.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <vector>

namespace muster::agent {

void remove_empty_folders(const std::string& path) {
    namespace fs = std::filesystem;
    std::error_code failure;
    std::vector<fs::path> directories;
    for (auto entry = fs::recursive_directory_iterator(path, failure); !failure && entry != fs::end(entry);
         entry.increment(failure))
        if (entry->is_directory(failure) && !entry->is_symlink(failure)) directories.push_back(entry->path());
    // Children come after their parents, so the way back empties each before its parent's turn. rmdir refuses the
    // others.
    for (auto directory = directories.rbegin(); directory != directories.rend(); ++directory)
        ::rmdir(directory->c_str());
    ::rmdir(path.c_str());
}

}  // namespace muster::agent
