// What has crossed TCP, by the kernel's count.
#pragma once

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <filesystem>
#include <string>

namespace muster::test {

/// Over all TCP connections of this process, which the ranks are threads of. (What was sent counts twice where a busy
/// machine made TCP send it again.)
inline std::size_t tcp_bytes_received() {
    std::size_t sum = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        tcp_info info{};
        socklen_t length = sizeof info;
        if (::getsockopt(std::stoi(entry.path().filename()), IPPROTO_TCP, TCP_INFO, &info, &length) == 0)
            sum += info.tcpi_bytes_received;
    }
    return sum;
}

}  // namespace muster::test
