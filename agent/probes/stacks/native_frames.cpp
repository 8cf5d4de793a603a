#include "agent/probes/stacks/native_frames.h"

#include <cxxabi.h>
#include <elfutils/libdwfl.h>

#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

int find_nothing(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*, GElf_Word, char**) {
    return -1;
}

constexpr Dwfl_Callbacks callbacks{.find_elf = &dwfl_linux_proc_find_elf,
                                   .find_debuginfo = &find_nothing,
                                   .section_address = nullptr,
                                   .debuginfo_path = nullptr};

std::string demangled(const char* name) {
    int status = 0;
    char* const text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
    std::string out = status == 0 && text != nullptr ? without_arguments(text) : std::string(name);
    std::free(text);
    return out;
}

std::string module_name(Dwfl_Module* module) {
    const char* const name =
        module != nullptr ? dwfl_module_info(module, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr)
                          : nullptr;
    return name != nullptr ? std::string(base_name(name)) : std::string();
}

bool is_interpreter(std::string_view module) {
    return module.starts_with("python") || module.starts_with("libpython");
}

struct Walk {
    Dwfl* session;
    const std::function<bool(const NativeFrame&)>& tell;
};

int take_frame(Dwfl_Frame* state, void* argument) {
    const auto& walk = *static_cast<Walk*>(argument);
    Dwarf_Addr pc = 0;
    bool is_activation = false;
    if (!dwfl_frame_pc(state, &pc, &is_activation)) return DWARF_CB_ABORT;
    const auto place = pc - (is_activation ? 0 : 1);  // a return address is behind its call
    Dwfl_Module* const module = dwfl_addrmodule(walk.session, place);
    GElf_Off offset = 0;
    GElf_Sym symbol;
    const char* const name =
        module != nullptr ? dwfl_module_addrinfo(module, place, &offset, &symbol, nullptr, nullptr, nullptr) : nullptr;
    NativeFrame frame{name != nullptr ? demangled(name) : std::string(), module_name(module)};
    frame.of_python = is_interpreter(frame.module);
    return walk.tell(frame) ? DWARF_CB_OK : DWARF_CB_ABORT;
}

struct Wanted {
    const char* name;
    std::uint64_t address = 0;
};

int find_symbol(Dwfl_Module* module, void**, const char* path, Dwarf_Addr, void* argument) {
    auto& wanted = *static_cast<Wanted*>(argument);
    if (!is_interpreter(base_name(path))) return DWARF_CB_OK;
    const int count = dwfl_module_getsymtab(module);
    for (int i = 0; i < count; ++i) {
        GElf_Sym symbol;
        GElf_Addr address = 0;
        const char* const name = dwfl_module_getsym_info(module, i, &symbol, &address, nullptr, nullptr, nullptr);
        if (name == nullptr || symbol.st_shndx == SHN_UNDEF || std::strcmp(name, wanted.name) != 0) continue;
        wanted.address = address;
        return DWARF_CB_ABORT;
    }
    return DWARF_CB_OK;
}

}  // namespace

std::string without_arguments(std::string_view name) {
    int depth = 0;  // in template arguments
    for (std::size_t i = 0; i < name.size(); ++i) {
        const auto before = name.substr(0, i);
        if (before.ends_with("operator")) {  // its own signs
            while (i + 1 < name.size() && name[i + 1] != '(') ++i;
            if (name.substr(i).starts_with("()")) ++i;
            continue;
        }
        if (name[i] == '<') ++depth;
        if (name[i] == '>') --depth;
        const bool unnamed = name.substr(i).starts_with("(anonymous namespace)");
        if (name[i] == '(' && depth == 0 && !unnamed) return std::string(before);
    }
    return std::string(name);
}

class NativeFrames::Body {
  public:
    ~Body() {
        if (session != nullptr) dwfl_end(session);
    }
    Body& operator=(Body&&) = delete;

    Dwfl* session = dwfl_begin(&callbacks);
};

Result<NativeFrames> NativeFrames::open(pid_t process) {
    auto body = std::make_unique<Body>();
    const auto failed = [&](std::string_view doing) {
        const char* const why = dwfl_errmsg(-1);
        return Error{Errc::io, cat(doing, " process ", process, ": ", why != nullptr ? why : "no reason given")};
    };
    if (body->session == nullptr) return failed("prepare to look into");
    if (const int number = dwfl_linux_proc_report(body->session, process); number != 0)
        return number > 0 ? error_from_errno(number, cat("read what process ", process, " has mapped"))
                          : failed("read what is mapped by");
    dwfl_report_end(body->session, nullptr, nullptr);
    constexpr bool held_by_us = true;
    if (dwfl_linux_proc_attach(body->session, process, held_by_us) < 0) return failed("look into");
    return NativeFrames(std::move(body));
}

Result<void> NativeFrames::walk(pid_t thread, const std::function<bool(const NativeFrame&)>& tell) {
    std::size_t told = 0;
    const std::function<bool(const NativeFrame&)> count = [&](const NativeFrame& frame) {
        ++told;
        return tell(frame);
    };
    Walk walk{body_->session, count};
    const int result = dwfl_getthread_frames(body_->session, thread, &take_frame, &walk);
    if (told > 0 || result == 0) return {};
    const char* const why = dwfl_errmsg(-1);
    return Error{Errc::io, cat("unwind thread ", thread, ": ", why != nullptr ? why : "no reason given")};
}

std::uint64_t NativeFrames::python_symbol(const char* name) const {
    Wanted wanted{name};
    dwfl_getmodules(body_->session, &find_symbol, &wanted, 0);
    return wanted.address;
}

NativeFrames::NativeFrames(std::unique_ptr<Body> body) : body_(std::move(body)) {}
NativeFrames::~NativeFrames() = default;
NativeFrames::NativeFrames(NativeFrames&&) noexcept = default;
NativeFrames& NativeFrames::operator=(NativeFrames&&) noexcept = default;

}  // namespace muster::agent
