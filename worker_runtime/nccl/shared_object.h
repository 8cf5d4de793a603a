// A shared library that is looked for at run time, with the reason when it is not there.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::runtime {

/// Never unloaded: CUDA leaves threads behind.
class SharedObject {
  public:
    /// The first of `names` that can be loaded. unsupported tells what the loader said about each.
    static Result<SharedObject> open(const std::vector<std::string>& names);

    /// Does this process have it already?
    static bool is_loaded(const std::string& name);

    /// Null when it has no such function.
    [[nodiscard]] void* find(const char* symbol) const;
    /// Where it was loaded from.
    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    void* handle_ = nullptr;
    std::string path_;
};

}  // namespace muster::runtime
