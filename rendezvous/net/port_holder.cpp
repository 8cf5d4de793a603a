// Who holds a port: /proc/net/tcp{,6} gives the socket's inode, and some process has it open as socket:[inode].
#include <dirent.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "rendezvous/base/text/text.h"
#include "rendezvous/net/listener.h"

namespace muster::rendezvous {

namespace {

constexpr std::string_view state_listen = "0A";

// A line is "sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ..."; local_address is HEX:PORT.
std::string listening_inode(const char* table, std::uint16_t port) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);  // the headings
    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
        words >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
        const auto colon = local.rfind(':');
        if (state != state_listen || colon == std::string::npos) continue;
        unsigned found = 0;
        if (std::sscanf(local.c_str() + colon + 1, "%x", &found) == 1 && found == port) return inode;
    }
    return {};
}

struct CloseDirectory {
    void operator()(DIR* directory) const { ::closedir(directory); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

bool has_open(const std::string& descriptors, const std::string& target) {
    const Directory directory(::opendir(descriptors.c_str()));
    if (!directory) return false;
    while (const dirent* entry = ::readdir(directory.get())) {
        std::array<char, 64> link{};
        const auto size = ::readlink((descriptors + "/" + entry->d_name).c_str(), link.data(), link.size());
        if (size > 0 && target == std::string_view(link.data(), static_cast<std::size_t>(size))) return true;
    }
    return false;
}

std::string process_name(const std::string& pid) {
    std::ifstream file("/proc/" + pid + "/comm");
    std::string name;
    std::getline(file, name);
    return name;
}

}  // namespace

std::string describe_port_holder(std::uint16_t port) {
    std::string inode = listening_inode("/proc/net/tcp", port);
    if (inode.empty()) inode = listening_inode("/proc/net/tcp6", port);
    if (inode.empty()) return {};
    const std::string target = cat("socket:[", inode, "]");
    const Directory processes(::opendir("/proc"));
    if (!processes) return {};
    while (const dirent* entry = ::readdir(processes.get())) {
        const std::string pid = entry->d_name;
        int number = 0;
        if (!parse_number(pid, number) || !has_open(cat("/proc/", pid, "/fd"), target)) continue;
        const std::string self = number == ::getpid() ? ", this one" : "";
        return cat("process ", pid, " (", process_name(pid), self, ")");
    }
    return {};
}

}  // namespace muster::rendezvous
