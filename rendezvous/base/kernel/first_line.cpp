#include "rendezvous/base/kernel/first_line.h"

#include <fstream>

namespace muster {

std::string first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

}  // namespace muster
