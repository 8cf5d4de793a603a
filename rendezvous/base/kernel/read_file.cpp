#include "rendezvous/base/kernel/read_file.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

namespace muster {

std::string read_file(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();  // an iterator would throw where the process that the file tells of ends meanwhile
    return std::move(text).str();
}

std::string read_start_of_file(const std::string& path, std::size_t bytes_max) {
    std::error_code failure;
    if (!std::filesystem::is_regular_file(path, failure)) return {};
    std::ifstream file(path, std::ios::binary);
    std::string text(bytes_max, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    return text;
}

}  // namespace muster
