// For LD_PRELOAD under Debian 12's user-mode Linux (6.1), which hands the kernel 832 bytes of a process's vector
// registers, while CPUs with AVX-512 have more and the kernel takes all or nothing: "Kernel panic - not syncing". Here
// the rest stays as it is.
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstring>

namespace {

long vector_registers(bool set, long pid, void* kind, iovec* part) {
    static char whole[1 << 16];  // user-mode Linux has one thread that traces
    iovec all = {whole, sizeof whole};
    if (::syscall(SYS_ptrace, PTRACE_GETREGSET, pid, kind, &all) != 0) return -1;
    const auto size = std::min(part->iov_len, all.iov_len);
    if (!set) {
        std::memcpy(part->iov_base, whole, size);
        part->iov_len = size;
        return 0;
    }
    std::memcpy(whole, part->iov_base, size);
    return ::syscall(SYS_ptrace, PTRACE_SETREGSET, pid, kind, &all);
}

}  // namespace

extern "C" long ptrace(__ptrace_request request, ...) noexcept {
    va_list words;
    va_start(words, request);
    const long pid = va_arg(words, long);
    void* const address = va_arg(words, void*);
    void* const data = va_arg(words, void*);
    va_end(words);
    constexpr long vector_kind = 0x202;  // NT_X86_XSTATE
    if ((request == PTRACE_GETREGSET || request == PTRACE_SETREGSET) && reinterpret_cast<long>(address) == vector_kind)
        return vector_registers(request == PTRACE_SETREGSET, pid, address, static_cast<iovec*>(data));
    if (request != PTRACE_PEEKTEXT && request != PTRACE_PEEKDATA && request != PTRACE_PEEKUSER)
        return ::syscall(SYS_ptrace, request, pid, address, data);
    long word = 0;  // the system call writes what the library's function returns
    if (::syscall(SYS_ptrace, request, pid, address, &word) < 0) return -1;
    errno = 0;
    return word;
}
