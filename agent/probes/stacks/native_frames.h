// Native frames of another process's threads and their symbols, by elfutils' libdwfl. Unwinding uses .eh_frame, which
// every program has. Debugging information is neither needed nor searched, because a search may ask a server.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/base/error.h"

namespace muster::agent {

struct NativeFrame {
    std::string function;  ///< Demangled, without arguments. Empty: no symbol.
    std::string module;    ///< "libc.so.6". Empty: not in a file.
    /// True for the interpreter's own library or program, false for modules that it has loaded.
    bool of_python = false;
};

/// A demangled name without the list of its arguments: "ns::(anonymous namespace)::f" of "ns::(anonymous
/// namespace)::f(int)".
std::string without_arguments(std::string_view name);

class NativeFrames {
  public:
    /// Reads what the process has mapped.
    static Result<NativeFrames> open(pid_t process);
    ~NativeFrames();
    NativeFrames(NativeFrames&&) noexcept;
    NativeFrames& operator=(NativeFrames&&) noexcept;

    /// Calls `tell` for each frame of `thread`, which the calling thread holds (TracedThread), the innermost first,
    /// until it says false. An error where not one is found.
    Result<void> walk(pid_t thread, const std::function<bool(const NativeFrame&)>& tell);

    /// Where the Python interpreter has that variable; 0: it has none, or there is no interpreter.
    [[nodiscard]] std::uint64_t python_symbol(const char* name) const;

  private:
    class Body;
    explicit NativeFrames(std::unique_ptr<Body> body);
    std::unique_ptr<Body> body_;
};

}  // namespace muster::agent
