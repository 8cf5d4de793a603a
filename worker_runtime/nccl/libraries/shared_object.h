// A shared library that is searched at run time, with the reason if it is missing.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/error.h"

namespace muster::runtime {

/// A loaded library. It is never unloaded, because CUDA's threads continue to run.
class SharedObject {
  public:
    /// Loads a library. unsupported has the loader's message, which names the file.
    static Result<SharedObject> open(const std::string& name);

    /// True if this process has loaded it already.
    static bool is_loaded(const std::string& name);

    /// Returns null if the library lacks this function.
    [[nodiscard]] void* find(const char* symbol) const;
    /// The file that was loaded.
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

/// Builds a message for users: `what` is missing, the loader's messages (`said`), and the remedy.
Error no_library(std::string_view what, const LibraryChoice& choice, std::string_view said);

}  // namespace muster::runtime
