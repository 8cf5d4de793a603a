// A shared library that is searched at run time, with the reason if it is missing.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/error.h"

namespace muster::runtime {

/// Never unloaded: CUDA leaves threads behind.
class SharedObject {
  public:
    /// unsupported tells what the loader said, which names the file.
    static Result<SharedObject> open(const std::string& name);

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

/// Whether the user has chosen a library.
struct LibraryChoice {
    std::string_view variable;  ///< Environment variable that may name the library.
    std::string_view named;     ///< Value of that variable. Empty: the usual names were tried.
};

/// For the person: there is no `what`; `said` tells of each name that was tried; and what can be done.
Error no_library(std::string_view what, const LibraryChoice& choice, std::string_view said);

}  // namespace muster::runtime
